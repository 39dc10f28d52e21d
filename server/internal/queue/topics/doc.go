// Package topics creates, changes, finds and deletes the topics of work queues and their consumer
// groups.
//
// The settings of a topic are one document of the store with a version, and they alone say what is
// meant. Every change is made there first, by a write that fails if another was made in between.
// Then each partition is brought in line with that version of the settings (steps.align). A
// partition refuses a version that is earlier than the one it has. So a change that was broken off
// is completed by a repeat of the call, by any other change of the topic, by RepairTopic, and, for
// one partition, by Catalog.Heal.
//
// Two things are done in the opposite order, so that nobody looks for a partition that is not
// there. A topic becomes Live after all its partitions were made. Additional partitions are made
// before the settings say that there are more. The states of a topic, and what leads from one to
// the next:
//
//	no topic -> Making    CreateTopic
//	Making   -> Live      its partitions were made, by CreateTopic or a later caller that found it
//	Making   -> Removing  DeleteTopic; CreateTopic of another topic if it is abandoned
//	Live     -> Removing  DeleteTopic
//	Removing -> no topic  its partitions were removed, by DeleteTopic or a later caller that found it
//
// Settings that the store lost are restored, when the topic is next asked for, from the copy that
// each partition has.
package topics
