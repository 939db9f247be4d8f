/** A table that loads its rows in pages by cursor: the next page when the reader nears the end. */

import { el, fill } from "../core/dom.js";
import { errorBox, toast, wordsOf } from "./feedback.js";
import { Table } from "./table.js";

/**
 * @template R
 * @typedef {object} PagedOptions
 * @property {(cursor: any) => Promise<{ items: readonly R[], next?: any }>} load  `cursor` null: from the start.
 * @property {Omit<import("./table.js").TableOptions<R>, "onNearEnd">} table
 * @property {(rows: readonly R[], hasMore: boolean) => void} [onRows]
 */

/** @template R */
export class PagedTable {
  /** @param {PagedOptions<R>} options */
  constructor(options) {
    this._options = options;
    /** @type {readonly R[]} */
    this.rows = [];
    /** @type {any} */
    this._next = null;
    this._asked = 0;
    this._isLoading = false;
    this._problem = el("div");
    /** @type {Table<R>} */
    this.table = new Table({ ...options.table, onNearEnd: () => this._more() });
    this.node = el("div", { class: "paged" }, this._problem, this.table.node);
  }

  /** Loads the first page again; rows of later pages stay while the reader is on them. Raises nothing. */
  async reload() {
    const asked = ++this._asked;
    this._isLoading = true;
    try {
      const found = await this._options.load(null);
      if (asked !== this._asked) return;
      fill(this._problem);
      this._take(found, found.items);
    } catch (error) {
      if (asked === this._asked && !isAbort(error)) {
        fill(
          this._problem,
          errorBox(error, () => this.reload()),
        );
      }
    } finally {
      if (asked === this._asked) this._isLoading = false;
    }
  }

  /** Refreshes the first page if it is all there is to see. */
  async refresh() {
    if (!this._isLoading && this.table.node.scrollTop < 40) await this.reload();
    else this.table.refresh();
  }

  async _more() {
    if (!this._next || this._isLoading) return;
    const asked = this._asked;
    this._isLoading = true;
    try {
      const found = await this._options.load(this._next);
      if (asked === this._asked) this._take(found, [...this.rows, ...found.items]);
    } catch (error) {
      if (!isAbort(error)) toast(wordsOf(error), "error");
    } finally {
      if (asked === this._asked) this._isLoading = false;
    }
  }

  /**
   * @param {{ next?: any }} found
   * @param {readonly R[]} rows
   */
  _take(found, rows) {
    this._next = found.next ?? null;
    this.rows = rows;
    this.table.setRows(rows, this._next ? rows.length + 1 : null);
    this._options.onRows?.(rows, Boolean(this._next));
  }
}

/** @param {unknown} error */
function isAbort(error) {
  return error instanceof DOMException && error.name === "AbortError";
}
