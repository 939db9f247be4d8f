/**
 * Routes: paths below the server's base path, or fragments in a report opened from a file. The query belongs to the
 * page: filters, columns and zoom are in it.
 */

/**
 * @typedef {object} Place
 * @property {string} path
 * @property {URLSearchParams} query
 *
 * @typedef {object} Route
 * @property {string} path  With names: '/jobs/:job'.
 * @property {import("./page.js").Page} page
 *
 * @typedef {{ route: Route, params: Record<string, string> }} Match
 */

export class Router {
  /**
   * @param {readonly Route[]} routes
   * @param {{ base: string, isFile: boolean }} where
   * @param {(match: Match | null, place: Place) => void} onChange
   */
  constructor(routes, where, onChange) {
    this._routes = routes;
    this._base = where.base;
    this._isFile = where.isFile;
    this._onChange = onChange;
  }

  start() {
    window.addEventListener(this._isFile ? "hashchange" : "popstate", () => this._show());
    document.addEventListener("click", (event) => this._onClick(event));
    this._show();
  }

  /** @returns {Place} */
  place() {
    const full = this._isFile ? location.hash.slice(1) || "/" : this._inside() + location.search;
    const mark = full.indexOf("?");
    const path = mark < 0 ? full : full.slice(0, mark);
    return { path: path || "/", query: new URLSearchParams(mark < 0 ? "" : full.slice(mark + 1)) };
  }

  /**
   * The address of a page, for links.
   * @param {string} path
   * @param {URLSearchParams | null} [query]
   */
  href(path, query) {
    const text = query?.toString() ?? "";
    return (this._isFile ? "#" : this._base) + path + (text && `?${text}`);
  }

  /**
   * @param {string} path
   * @param {URLSearchParams | null} [query]
   */
  go(path, query) {
    if (this._isFile) {
      location.hash = this.href(path, query);
    } else {
      history.pushState(null, "", this.href(path, query));
      this._show();
    }
  }

  /**
   * Changes the query of this page without mounting it again: the address can be shared and reloaded.
   * @param {URLSearchParams} query
   */
  replaceQuery(query) {
    history.replaceState(history.state, "", this.href(this.place().path, query));
  }

  _inside() {
    const path = location.pathname;
    return path.startsWith(`${this._base}/`) ? path.slice(this._base.length) : "/";
  }

  _show() {
    if (this._isFile && /^#[^/]/.test(location.hash)) return; // an anchor of the page
    const place = this.place();
    this._onChange(match(this._routes, place.path), place);
    window.scrollTo(0, 0);
  }

  /** @param {MouseEvent} event */
  _onClick(event) {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    const isPlain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!(link instanceof HTMLAnchorElement) || !isPlain || event.defaultPrevented || this._isFile) return;
    if (link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (!link.pathname.startsWith(`${this._base}/`) || link.pathname.startsWith(`${this._base}/api/`)) return;
    if (link.pathname === location.pathname && link.hash) return;
    event.preventDefault();
    history.pushState(null, "", link.href);
    this._show();
  }
}

/**
 * @param {readonly Route[]} routes
 * @param {string} path
 * @returns {Match | null}
 */
export function match(routes, path) {
  const words = path.split("/").filter(Boolean);
  for (const route of routes) {
    const names = route.path.split("/").filter(Boolean);
    if (names.length !== words.length) continue;
    /** @type {Record<string, string>} */
    const params = {};
    const isMatch = names.every((name, index) => {
      const word = words[index] ?? "";
      if (!name.startsWith(":")) return name === word;
      params[name.slice(1)] = decode(word);
      return true;
    });
    if (isMatch) return { route, params };
  }
  return null;
}

/** @param {string} word */
function decode(word) {
  try {
    return decodeURIComponent(word);
  } catch {
    return word;
  }
}
