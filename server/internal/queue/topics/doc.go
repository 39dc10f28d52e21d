// Package topics creates, changes, finds and deletes the topics of work queues and their consumer
// groups.
//
// The settings of a topic are one document of the store with a version, and they alone say what is
// meant. Every change is made there first, by a write that fails if another was made in between;
// then each partition is brought in line with that version of the settings (steps.align). A
// partition refuses an earlier version than it has. So a change that was broken off is completed by
// the same call made again, by any other change of the topic, by RepairTopic, and, for one partition,
// by Catalog.Heal. Two things are done in the opposite order, so that nobody is told of a partition
// that is not there: a topic is Live after all its partitions were made, and more partitions are made
// before the settings say that there are more.
//
//	(none)    CreateTopic   Making
//	Making    partitions    Live      by CreateTopic, or whoever finds the topic in this state
//	Making    DeleteTopic   Removing
//	Live      DeleteTopic   Removing
//	Removing  partitions    (none)    by DeleteTopic, or whoever finds the topic in this state
//
// Settings that the store lost are restored from the copy that each partition has, when somebody asks
// for the topic.
package topics
