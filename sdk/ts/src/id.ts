import { v7 as uuidv7 } from "uuid";

/**
 * newId returns a new UUIDv7, which sorts by time. Unlike crypto.randomUUID it also works outside
 * of a secure context.
 */
export function newId(): string {
  return uuidv7();
}
