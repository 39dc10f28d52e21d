// Package consume delivers the messages of work queues to the sessions of consumers.
package consume
