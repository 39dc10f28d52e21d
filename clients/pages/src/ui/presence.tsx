/** Availability is whether a user is online, and if so in the foreground. */
export type Availability = "online" | "away" | "offline";

/**
 * PresenceDot shows a user's availability by color and by shape: filled, half filled, or a ring.
 * Text with the same content must be next to it, because it is hidden from screen readers.
 */
export function PresenceDot({ availability }: { availability: Availability }) {
  return <span class="presence-dot" data-availability={availability} aria-hidden="true" />;
}
