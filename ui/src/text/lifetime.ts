//! Lifetimes of tokens and credentials, in seconds.

export const MINUTE = 60;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** A lifetime in words: `8 hours`. */
export function lifetimeName(seconds: number): string {
  if (seconds === 365 * DAY) return "1 year";
  if (seconds % DAY === 0 && seconds > DAY) return `${seconds / DAY} days`;
  if (seconds % HOUR === 0) return seconds === HOUR ? "1 hour" : `${seconds / HOUR} hours`;
  return `${Math.round(seconds / MINUTE)} minutes`;
}

/** A lifetime as the command line takes it: `8h`. */
export function lifetimeFlag(seconds: number): string {
  if (seconds % DAY === 0 && seconds > DAY) return `${seconds / DAY}d`;
  return seconds % HOUR === 0 ? `${seconds / HOUR}h` : `${Math.round(seconds / MINUTE)}m`;
}
