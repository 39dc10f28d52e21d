"""Adds facts to the comments of a descriptor set for which sabledocs has no field.

Reads a FileDescriptorSet with source info on standard input and writes it to standard output. The
comment of a method then ends with a sentence on whether the call streams and whether it may be
repeated, and that of a deprecated element begins with "Deprecated.".
"""

import sys

from google.protobuf import descriptor_pb2

# The numbers of these fields in descriptor.proto. The path of a location alternates between such a
# number and an index.
MESSAGE, ENUM, SERVICE = 4, 5, 6  # of a file
FIELD, NESTED_MESSAGE, NESTED_ENUM = 2, 3, 4  # of a message
VALUE = 2  # of an enum
METHOD = 2  # of a service


def call(method):
    """Returns a sentence on streaming and idempotency of a method, or "" if there is none to say."""
    parts = []
    if method.client_streaming and method.server_streaming:
        parts.append("The request and the response are streams.")
    elif method.server_streaming:
        parts.append("The response is a stream.")
    elif method.client_streaming:
        parts.append("The request is a stream.")
    match method.options.idempotency_level:
        case descriptor_pb2.MethodOptions.NO_SIDE_EFFECTS:
            parts.append("No side effects: the Connect protocol also allows HTTP GET.")
        case descriptor_pb2.MethodOptions.IDEMPOTENT:
            parts.append("Idempotent: a repeat has no further effect.")
    return "_" + " ".join(parts) + "_" if parts else ""


def elements(file):
    """Yields, for each element of a file, its path, the element, and the text to end its comment."""

    def enums(path, all_enums):
        for i, enum in enumerate(all_enums):
            yield path + (i,), enum, ""
            for j, value in enumerate(enum.value):
                yield path + (i, VALUE, j), value, ""

    def messages(path, all_messages):
        for i, message in enumerate(all_messages):
            yield path + (i,), message, ""
            for j, field in enumerate(message.field):
                yield path + (i, FIELD, j), field, ""
            yield from enums(path + (i, NESTED_ENUM), message.enum_type)
            yield from messages(path + (i, NESTED_MESSAGE), message.nested_type)

    yield from messages((MESSAGE,), file.message_type)
    yield from enums((ENUM,), file.enum_type)
    for i, service in enumerate(file.service):
        yield (SERVICE, i), service, ""
        for j, method in enumerate(service.method):
            yield (SERVICE, i, METHOD, j), method, call(method)


def main():
    files = descriptor_pb2.FileDescriptorSet.FromString(sys.stdin.buffer.read())
    for file in files.file:
        locations = {tuple(location.path): location for location in file.source_code_info.location}
        for path, element, end in elements(file):
            begin = "Deprecated." if element.options.deprecated else ""
            if not begin and not end:
                continue
            location = locations[path]
            comment = "\n".join(line.removeprefix(" ") for line in location.leading_comments.splitlines())
            location.leading_comments = "\n\n".join(part for part in (begin, comment.strip(), end) if part)
    sys.stdout.buffer.write(files.SerializeToString())


if __name__ == "__main__":
    main()
