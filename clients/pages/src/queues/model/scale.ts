/**
 * Round numbers from 0 to at least the highest value, for the lines of a chart: at most as many steps as wanted, and no
 * fractions where there are only whole numbers to show.
 */
export function ticks(highest: number, steps: number, whole: boolean): number[] {
  const raw = Math.max(highest, whole ? 1 : 0.01) / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((f) => f * power >= raw * (1 - 1e-9)) ?? 10;
  const step = whole ? Math.max(1, factor * power) : factor * power;
  const count = Math.max(1, Math.ceil(highest / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}
