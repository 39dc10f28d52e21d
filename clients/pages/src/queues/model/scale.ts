/**
 * ticks returns round numbers from 0 to at least highest, for the lines of a chart. There are at
 * most steps intervals. With whole, all numbers are integers. If highest is 0, the axis ends at 1.
 */
export function ticks(highest: number, steps: number, whole: boolean): number[] {
  const least = whole || highest <= 0 ? 1 : 0.01;
  const raw = Math.max(highest, least) / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  const factor = [1, 2, 5, 10].find((f) => f * power >= raw * (1 - 1e-9)) ?? 10;
  const step = whole || highest <= 0 ? Math.max(1, factor * power) : factor * power;
  const count = Math.max(1, Math.ceil(highest / step - 1e-9));
  return Array.from({ length: count + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}
