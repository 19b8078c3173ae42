//! Lifetimes of tokens that a person can choose.

export interface Lifetime {
  seconds: number;
  label: string;
  /** As the command line program takes it. */
  flag: string;
}

const HOUR = 3_600;
const DAY = 24 * HOUR;

function hours(count: number, label: string): Lifetime {
  return { seconds: count * HOUR, label, flag: `${count}h` };
}

function days(count: number, label: string): Lifetime {
  return { seconds: count * DAY, label, flag: `${count * 24}h` };
}

export const TOKEN_LIFETIMES: readonly Lifetime[] = [
  hours(1, "1 hour"),
  hours(12, "12 hours"),
  days(1, "1 day"),
  days(7, "7 days"),
  days(30, "30 days"),
  days(90, "90 days"),
  days(365, "1 year"),
];

/** Tokens of service accounts live for 30 days at most. */
export const ACCOUNT_LIFETIMES = TOKEN_LIFETIMES.filter((lifetime) => lifetime.seconds <= 30 * DAY);

export const DEFAULT_TOKEN_SECONDS = 30 * DAY;
export const DEFAULT_ACCOUNT_SECONDS = HOUR;
