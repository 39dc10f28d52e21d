import { invalid } from "./error.js";

/**
 * text takes fields' names and values, and refuses what could not even be encoded: a lone surrogate has no UTF-8.
 * Absent values pass. All other rules are the server's to judge.
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

// With the flag u a pair of surrogates is one character, so that only lone ones match. String.prototype.isWellFormed is
// younger than some browsers in use.
const loneSurrogate = /\p{Surrogate}/u;

function wellFormed(value: string): boolean {
  return !loneSurrogate.test(value);
}

/** texts checks each of a field's strings. */
export function texts(field: string, values: Iterable<unknown>): void {
  for (const value of values) {
    text([field, value]);
  }
}

/** place refuses what is no place in a log. Absent values pass. */
export function place(field: string, value: number | undefined): void {
  if (value !== undefined && !Number.isSafeInteger(value)) {
    throw invalid(field, "is not an integer");
  }
}
