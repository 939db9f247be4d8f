/** Charts that share cursor and zoom. */

const SHORTEST_US = 1e6;

/** @typedef {{ from_us: number, to_us: number }} Range */

export class ChartGroup {
  /**
   * @param {(range: Range | null) => void} [onZoom]  null: everything is shown.
   * @param {(at_us: number | null) => void} [onCursor]
   */
  constructor(onZoom, onCursor) {
    this.key = `group-${Math.random().toString(36).slice(2)}`;
    this._onZoom = onZoom;
    this._onCursor = onCursor;
    /** @type {number | null} */
    this._cursor_us = null;
    /** @type {Set<{ applyRange: () => void }>} */
    this.charts = new Set();
    /** @type {Range | null} */
    this.range = null;
    /** All there is to see. @type {Range} */
    this.extent = { from_us: 0, to_us: 0 };
  }

  /** @param {Range | null} range */
  zoom(range) {
    this.range = range;
    for (const chart of this.charts) chart.applyRange();
    this._onZoom?.(range);
  }

  /** @param {number} share  Of the visible time; negative: to earlier times. */
  pan(share) {
    const { from_us, to_us } = this.range ?? this.extent;
    const by = (to_us - from_us) * share;
    this._zoomWithin(from_us + by, to_us + by);
  }

  /**
   * @param {number} factor  Below 1: closer.
   * @param {number} [at_us]  Stays where it is. Default: the middle.
   */
  magnify(factor, at_us) {
    const { from_us, to_us } = this.range ?? this.extent;
    const centre = at_us ?? (from_us + to_us) / 2;
    this._zoomWithin(centre - (centre - from_us) * factor, centre + (to_us - centre) * factor);
  }

  /**
   * @param {number} from_us
   * @param {number} to_us
   */
  _zoomWithin(from_us, to_us) {
    const length = Math.max(to_us - from_us, SHORTEST_US);
    if (length >= this.extent.to_us - this.extent.from_us) return this.zoom(null);
    const start = Math.max(this.extent.from_us, Math.min(from_us, this.extent.to_us - length));
    return this.zoom({ from_us: start, to_us: start + length });
  }

  /** @param {number | null} at_us  Time under the pointer. */
  point(at_us) {
    if (at_us === this._cursor_us) return;
    this._cursor_us = at_us;
    this._onCursor?.(at_us);
  }
}

/**
 * Moves the visible time with the pointer until the button is released.
 * @param {any} plot
 * @param {ChartGroup} group
 * @param {MouseEvent} event
 */
export function panWithPointer(plot, group, event) {
  const ending = new AbortController();
  let last = event.clientX;
  const move = (/** @type {MouseEvent} */ moved) => {
    group.pan((last - moved.clientX) / plot.over.clientWidth);
    last = moved.clientX;
  };
  document.addEventListener("mousemove", move, { signal: ending.signal });
  document.addEventListener("mouseup", () => ending.abort(), { once: true });
}
