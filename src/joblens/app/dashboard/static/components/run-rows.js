/** Jobs of a run in memory: taken column by column, changed row by row, filtered and sorted for the table. */

/**
 * @typedef {object} RunRow
 * @property {number} index
 * @property {string} name
 * @property {string} state
 * @property {number} group
 * @property {number | null} number
 * @property {number} attempts
 * @property {number | null} began_us
 * @property {number | null} duration_s
 * @property {number | null} cpu_s
 * @property {number | null} memory_bytes
 * @property {string} why
 *
 * @typedef {object} Choice
 * @property {ReadonlySet<string>} states  Empty: all.
 * @property {string} text
 * @property {number | null} group
 * @property {string} sort
 * @property {boolean} ascending
 */

/** States in the order of their urgency: failures first. */
export const STATE_ORDER = [
  "failed",
  "pending_failed",
  "terminated",
  "running",
  "pending",
  "ready",
  "canceled",
  "blocked",
  "waiting",
  "uninitialized",
  "completed",
  "disabled",
];
const RANKS = new Map(STATE_ORDER.map((state, rank) => [state, rank]));

/** @type {Record<string, (row: RunRow) => number | null>} */
const NUMBERS = {
  job: (row) => row.number,
  started: (row) => row.began_us,
  duration: (row) => row.duration_s,
  cpu: (row) => row.cpu_s,
  memory: (row) => row.memory_bytes,
  attempts: (row) => row.attempts,
};

export class RunRows {
  constructor() {
    /** @type {RunRow[]} */
    this._rows = [];
    /** @type {Map<number, RunRow>} */
    this._byIndex = new Map();
    /** @type {readonly string[]} */
    this.groups = [];
    this.isWhole = false;
  }

  get size() {
    return this._rows.length;
  }

  /** Takes the first rows. @param {Api.RunPage} answer */
  takeFirst(answer) {
    this._replace(answer.states, answer.rows);
  }

  /** Takes all rows, or those that changed. @param {Api.RunTable} answer */
  take(answer) {
    this.groups = answer.groups;
    this.isWhole = true;
    if (answer.is_complete) this._replace(answer.states, answer.rows);
    else {
      for (const row of rowsOf(answer.states, answer.rows)) {
        const known = this._byIndex.get(row.index);
        if (known) Object.assign(known, row);
        else this._add(row);
      }
    }
    for (const [index, [cpu_s, memory_bytes]] of Object.entries(/** @type {any} */ (answer.so_far))) {
      Object.assign(this._byIndex.get(Number(index)) ?? {}, { cpu_s, memory_bytes });
    }
  }

  /** @param {number} index */
  at(index) {
    return this._byIndex.get(index);
  }

  /** How many jobs are in each state. */
  counts() {
    /** @type {Record<string, number>} */
    const found = {};
    for (const row of this._rows) found[row.state] = (found[row.state] ?? 0) + 1;
    return found;
  }

  /**
   * States of the jobs of each box of a graph.
   * @param {readonly Api.GraphBox[]} boxes
   * @returns {Record<string, number>[]}
   */
  statesOf(boxes) {
    /** @type {Record<string, number>[]} */
    const found = boxes.map(() => ({}));
    const single = new Map();
    const grouped = new Map();
    boxes.forEach((box, place) => {
      if (box.index === null || box.index === undefined) grouped.set(box.group, place);
      else single.set(box.index, place);
    });
    for (const row of this._rows) {
      const states = found[single.get(row.index) ?? grouped.get(row.group)];
      if (states) states[row.state] = (states[row.state] ?? 0) + 1;
    }
    return found;
  }

  /**
   * Rows of the table. Without an order: failures first, then what runs, then the newest.
   * @param {Choice} choice
   */
  chosen(choice) {
    const text = choice.text.toLowerCase();
    const rows = this._rows.filter(
      (row) =>
        (choice.states.size === 0 || choice.states.has(row.state)) &&
        (choice.group === null || row.group === choice.group) &&
        (!text || row.name.toLowerCase().includes(text) || String(row.number) === text),
    );
    return sorted(rows, choice.sort, choice.ascending);
  }

  /**
   * @param {readonly string[]} states
   * @param {Api.RunRowColumns} columns
   */
  _replace(states, columns) {
    this._rows = [];
    this._byIndex.clear();
    for (const row of rowsOf(states, columns)) this._add(row);
  }

  /** @param {RunRow} row */
  _add(row) {
    this._rows.push(row);
    this._byIndex.set(row.index, row);
  }
}

/**
 * @param {RunRow[]} rows
 * @param {string} sort
 * @param {boolean} ascending
 */
function sorted(rows, sort, ascending) {
  const number = NUMBERS[sort];
  if (sort === "name") {
    const sign = ascending ? 1 : -1;
    const order = new Intl.Collator("en", { numeric: true }).compare;
    return rows.sort((one, other) => sign * order(one.name, other.name));
  }
  if (number) {
    const unknown = Number.POSITIVE_INFINITY; // comes last either way
    const sign = ascending ? 1 : -1;
    const key = (/** @type {RunRow} */ row) => {
      const value = number(row);
      return value === null ? unknown : sign * value;
    };
    return byKey(rows, key);
  }
  return byKey(rows, (row) => (RANKS.get(row.state) ?? 99) * 1e17 - (row.began_us ?? -row.index));
}

/**
 * Sorts by numbers that are computed once per row.
 * @param {RunRow[]} rows
 * @param {(row: RunRow) => number} key
 */
function byKey(rows, key) {
  const keys = new Float64Array(rows.length);
  rows.forEach((row, place) => {
    keys[place] = key(row);
  });
  const places = Uint32Array.from(keys, (_, place) => place);
  places.sort((one, other) => {
    const difference = /** @type {number} */ (keys[one]) - /** @type {number} */ (keys[other]);
    return difference || one - other; // NaN: both are unknown
  });
  return Array.from(places, (place) => /** @type {RunRow} */ (rows[place]));
}

/**
 * @param {readonly string[]} states
 * @param {Api.RunRowColumns} columns
 * @returns {RunRow[]}
 */
function rowsOf(states, columns) {
  return columns.index.map((index, place) => ({
    index,
    name: columns.name[place] ?? "",
    state: states[columns.state[place] ?? 0] ?? "",
    group: columns.group[place] ?? 0,
    number: columns.number[place] ?? null,
    attempts: columns.attempts[place] ?? 0,
    began_us: columns.began_us[place] ?? null,
    duration_s: columns.duration_s[place] ?? null,
    cpu_s: columns.cpu_s[place] ?? null,
    memory_bytes: columns.memory_bytes[place] ?? null,
    why: columns.why[String(index)] ?? "",
  }));
}
