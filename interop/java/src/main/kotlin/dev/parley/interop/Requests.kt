package dev.parley.interop

import com.google.protobuf.ByteString
import dev.parley.v1.Partitioner
import dev.parley.v1.consumeRequest
import dev.parley.v1.createTopicRequest
import dev.parley.v1.produceRequest
import dev.parley.v1.queueMessage
import dev.parley.v1.topic
import dev.parley.v1.channelPosition
import dev.parley.v1.sendMessageRequest
import dev.parley.v1.subscribeRequest

/** Builds requests with the builders that protoc generates for Kotlin. */
object Requests {
    @JvmStatic
    fun send(channel: String, text: String, id: String) = sendMessageRequest {
        channelId = channel
        content = text
        clientMsgId = id
        metadata["from"] = "kotlin"
    }

    @JvmStatic
    fun subscribe(channel: String) = subscribeRequest {
        channels += channelPosition {
            channelId = channel
            afterSeq = 0
        }
    }

    @JvmStatic
    fun produce(name: String, text: String) = produceRequest {
        topic = name
        messages += queueMessage { payload = ByteString.copyFromUtf8(text) }
    }

    @JvmStatic
    fun consume(name: String) = consumeRequest {
        topics += name
        group = name
        consumer = "java"
        concurrency = 10
    }

    @JvmStatic
    fun createTopic(name: String) = createTopicRequest {
        topic = topic {
            this.name = name
            partitions = 1
            partitioner = Partitioner.PARTITIONER_CONSISTENT_HASH
        }
    }
}
