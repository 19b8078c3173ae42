//! Lifetimes of tokens that a person can choose, in seconds.

import { DAY, HOUR } from "../../text/lifetime";

export const TOKEN_LIFETIMES = [HOUR, 12 * HOUR, DAY, 7 * DAY, 30 * DAY, 90 * DAY, 365 * DAY];

/** Tokens of service accounts live for 30 days at most. */
export const ACCOUNT_LIFETIMES = TOKEN_LIFETIMES.filter((seconds) => seconds <= 30 * DAY);

export const DEFAULT_TOKEN_SECONDS = 30 * DAY;
export const DEFAULT_ACCOUNT_SECONDS = HOUR;
