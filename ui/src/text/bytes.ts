//! Sizes in words.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"] as const;

/** A size in the largest unit of which it has at least one, for example `1.5 GiB`. */
export function bytes(size: number): string {
  let [value, unit] = [Math.max(0, size), 0];
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 || Number.isInteger(value) ? 0 : 1;
  return `${value.toFixed(digits)} ${UNITS[unit]}`;
}
