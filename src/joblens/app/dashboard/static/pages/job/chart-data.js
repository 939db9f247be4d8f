/** Answers of the server as what charts draw: new points appended, parts stacked, earlier runs behind. Pure. */

/** @typedef {(number | null)[]} Values */

/**
 * Curves of earlier runs: chart -> name in `EarlierRun.curves`, words, colour.
 * @type {Record<string, { name: string, words: string, colour: string }[]>}
 */
const EARLIER = {
  cpu: [{ name: "cpu", words: "", colour: "--cpu" }],
  memory: [{ name: "memory", words: "", colour: "--ink" }],
  io: [
    { name: "io_read", words: " read", colour: "--series-0" },
    { name: "io_write", words: " written", colour: "--series-1" },
  ],
  network: [
    { name: "network_rx", words: " received", colour: "--series-0" },
    { name: "network_tx", words: " sent", colour: "--series-1" },
  ],
  processes: [{ name: "processes", words: "", colour: "--series-0" }],
};
/** @type {Record<string, string>} */
const COLOURS = {
  cpu_total: "--cpu",
  memory_used: "--ink",
  memory_anon: "--series-0",
  memory_shmem: "--series-1",
  memory_kernel: "--series-3",
  memory_file: "--series-4",
  memory_swap: "--series-6",
};
const ON_TOP = "memory_used";
const FILLED = new Set(["cpu_total", "processes", "threads"]);

/**
 * Both together; null if they do not fit (a chart appeared), and everything must be read again.
 * @param {Api.JobCharts} whole
 * @param {Api.JobCharts} news
 * @returns {Api.JobCharts | null}
 */
export function joinCharts(whole, news) {
  if (news.started_at_us !== whole.started_at_us) return null; // it started again
  const last = whole.at_us.at(-1) ?? 0;
  const first = news.at_us.findIndex((at) => at > last);
  const { status, now_us, ended_at_us } = news;
  if (first < 0) return { ...whole, status, now_us, ended_at_us: ended_at_us ?? null };
  const count = news.at_us.length - first;
  const charts = [];
  for (const chart of whole.charts) {
    const newer = news.charts.find((each) => each.key === chart.key);
    if (!newer || (chart.unknown && !newer.unknown)) return null;
    const titles = new Set((chart.curves ?? []).map((curve) => curve.key));
    if ((newer.curves ?? []).some((curve) => !titles.has(curve.key))) return null;
    const curves = (chart.curves ?? []).map((curve) => {
      const more = newer.curves?.find((each) => each.key === curve.key)?.values.slice(first);
      return { ...curve, values: [...curve.values, ...(more ?? new Array(count).fill(null))] };
    });
    charts.push({ ...chart, curves, limit: newer.limit ?? chart.limit ?? null });
  }
  if (news.charts.length !== whole.charts.length) return null;
  return {
    ...whole,
    status,
    now_us,
    ended_at_us: ended_at_us ?? null,
    samples: whole.samples + count,
    at_us: [...whole.at_us, ...news.at_us.slice(first)],
    charts,
  };
}

/**
 * Times with those of longer earlier runs at the end, and their curves at these times.
 * @param {readonly number[]} at_us
 * @param {number} began_us
 * @param {readonly Api.EarlierRun[]} runs
 * @returns {{ at_us: readonly number[], curves: Map<string, { label: string, values: Values }[]> }}
 */
export function withEarlier(at_us, began_us, runs) {
  /** @type {Map<string, { label: string, values: Values }[]>} */
  const curves = new Map();
  if (runs.length === 0) return { at_us, curves };
  const last = at_us.at(-1) ?? began_us;
  const beyond = new Set(runs.flatMap((run) => run.offset_us.map((each) => began_us + each).filter((at) => at > last)));
  const times = [...at_us, ...[...beyond].sort((one, other) => one - other)];
  for (const run of runs) {
    const own = run.offset_us.map((each) => began_us + each);
    for (const [name, values] of Object.entries(run.curves)) {
      const found = curves.get(name) ?? [];
      found.push({ label: `job ${run.number ?? ""}`, values: resampled(own, values, times) });
      curves.set(name, found);
    }
  }
  return { at_us: times, curves };
}

/**
 * Values at other times: the highest since the time before, so that no peak is lost, or in between two points.
 * @param {readonly number[]} own
 * @param {readonly (number | null)[]} values
 * @param {readonly number[]} times
 * @returns {Values}
 */
function resampled(own, values, times) {
  let next = 0;
  return times.map((at) => {
    /** @type {number | null} */
    let highest = null;
    while (next < own.length && /** @type {number} */ (own[next]) <= at) {
      const value = values[next] ?? null;
      if (value !== null && (highest === null || value > highest)) highest = value;
      next++;
    }
    if (highest !== null) return highest;
    const before = values[next - 1] ?? null;
    const after = values[next] ?? null;
    if (next === 0 || next >= own.length || before === null || after === null) return null;
    const begin = /** @type {number} */ (own[next - 1]);
    return before + ((after - before) * (at - begin)) / ((own[next] ?? at) - begin);
  });
}

/**
 * Series of a chart, earlier runs first: they are drawn behind.
 * @param {Api.Chart} chart
 * @param {number} length
 * @param {Map<string, { label: string, values: Values }[]>} earlier
 * @returns {import("../../components/chart.js").Series[]}
 */
export function seriesOf(chart, length, earlier) {
  /** @type {import("../../components/chart.js").Series[]} */
  const series = [];
  for (const { name, words, colour } of EARLIER[chart.key] ?? []) {
    for (const { label, values } of earlier.get(name) ?? []) {
      series.push({ label: label + words, values, isFaint: true, isDashed: true, colour });
    }
  }
  /** @type {Values} */
  let below = [];
  /** @type {number | undefined} */
  let above;
  // The line of memory in use is drawn on top of its parts.
  const curves = (chart.curves ?? []).toSorted((one, other) => Number(isOnTop(one)) - Number(isOnTop(other)));
  curves.forEach(({ key, title, values }, position) => {
    const colour = COLOURS[key] ?? `--series-${position % 8}`;
    const padded = values.length < length ? [...values, ...new Array(length - values.length).fill(null)] : values;
    /** @type {import("../../components/chart.js").Series} */
    const one = { label: title, values: padded, colour };
    if (chart.is_stacked && key !== ON_TOP) {
      const drawn = stacked(padded, below);
      series.push({ ...one, drawn, ...(above === undefined ? { isFilled: true } : { above }) });
      above = series.length - 1;
      below = drawn;
    } else {
      series.push({ ...one, isFilled: FILLED.has(key), isMain: key === ON_TOP });
    }
  });
  return series;
}

/** @param {Api.Curve} curve */
function isOnTop(curve) {
  return curve.key === ON_TOP;
}

/**
 * @param {Values} values
 * @param {Values} below
 * @returns {Values}
 */
function stacked(values, below) {
  return values.map((value, index) => (value === null ? null : value + (below[index] ?? 0)));
}
