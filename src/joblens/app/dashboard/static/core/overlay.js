/** Curves of several jobs or runs, each with times of its own, on one time axis that begins at their start. */

/**
 * @typedef {object} Curves
 * @property {readonly number[]} offset_us
 * @property {Record<string, readonly (number | null)[]>} curves
 */

/**
 * Largest value in each part of the time, so that no peak is lost; straight lines where a part has no sample;
 * null before the first and after the last sample.
 * @param {readonly Curves[]} all
 * @param {string} name
 * @param {number} [points]
 * @returns {{ at_us: number[], values: (number | null)[][] }}
 */
export function overlaid(all, name, points = 400) {
  const end = Math.max(0, ...all.map((each) => (each.curves[name] ? (each.offset_us.at(-1) ?? 0) : 0)));
  const step = Math.max(1, end / (points - 1));
  const at_us = Array.from({ length: end ? points : 1 }, (_, index) => index * step);
  return { at_us, values: all.map((each) => onGrid(each.offset_us, each.curves[name] ?? [], at_us, step)) };
}

/**
 * @param {readonly number[]} offsets
 * @param {readonly (number | null)[]} values
 * @param {readonly number[]} at_us
 * @param {number} step
 */
function onGrid(offsets, values, at_us, step) {
  /** @type {(number | null)[]} */
  const found = at_us.map(() => null);
  /** @type {{ slot: number, value: number } | null} */
  let last = null;
  for (let index = 0; index < offsets.length; index++) {
    const value = values[index] ?? null;
    if (value === null) continue;
    const slot = Math.round((offsets[index] ?? 0) / step);
    found[slot] = Math.max(found[slot] ?? value, value);
    if (last && slot > last.slot + 1) {
      for (let between = last.slot + 1; between < slot; between++) {
        const share = (between - last.slot) / (slot - last.slot);
        found[between] = last.value + (value - last.value) * share;
      }
    }
    last = { slot, value };
  }
  return found;
}

/**
 * Names of all curves, in the order in which they first appear.
 * @param {readonly Curves[]} all
 */
export function curveNames(all) {
  return [...new Set(all.flatMap((each) => Object.keys(each.curves)))];
}
