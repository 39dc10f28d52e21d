import { invalid } from "./error.js";

/**
 * text throws INVALID_FIELD for a value that cannot be encoded: one that is not a string, or has a
 * lone surrogate. Undefined values are valid. The server checks all other rules.
 */
export function text(...pairs: [field: string, value: unknown][]): void {
  for (const [field, value] of pairs) {
    if (value === undefined) {
      continue;
    }
    if (typeof value !== "string") {
      throw invalid(field, "is not a string");
    }
    if (!wellFormed(value)) {
      throw invalid(field, "is not valid UTF-8");
    }
  }
}

// With the flag u a surrogate pair is one character, so that only lone surrogates match. Some
// supported browsers lack String.prototype.isWellFormed.
const loneSurrogate = /\p{Surrogate}/u;

function wellFormed(value: string): boolean {
  return !loneSurrogate.test(value);
}

/** texts checks each string of a field, as text does. */
export function texts(field: string, values: Iterable<unknown>): void {
  for (const value of values) {
    text([field, value]);
  }
}

/** safeInteger throws INVALID_FIELD for a number that is not a safe integer. Undefined is valid. */
export function safeInteger(field: string, value: number | undefined): void {
  if (value !== undefined && !Number.isSafeInteger(value)) {
    throw invalid(field, "is not an integer");
  }
}
