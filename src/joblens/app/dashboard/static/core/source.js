/** Where pages get their data: from the server, or in a report from the file (`report/source.js`). Pages use only this interface. */

import { EventFeed } from "./stream.js";

/**
 * @typedef {Record<string, string | number | boolean | null | undefined | readonly (string | number)[]>} Query
 * @typedef {{ signal?: AbortSignal }} Options
 * @typedef {object} Session
 * @property {{ name: string, user: string, role: "reader" | "operator" | "admin", scope: string }} principal
 * @property {string | null} csrf
 * @property {string} version
 *
 * @typedef {object} DataSource
 * @property {boolean} isLive  Whether data changes and changes can be made: false in a report.
 * @property {Session} session
 * @property {(path: string, query?: Query, options?: Options) => Promise<any>} get
 * @property {(method: "POST" | "DELETE", path: string, body?: unknown, options?: Options) => Promise<any>} send
 * @property {(path: string, query?: Query) => string} url  The address of a download.
 * @property {(path: string, handlers: import("./stream.js").Handlers) => { close: () => void }} follow
 * @property {(role: "operator" | "admin") => boolean} may
 */

/** What went wrong and what to do about it, in words for the reader. */
export class Problem extends Error {
  /**
   * @param {string} detail
   * @param {string} [hint]
   * @param {number} [status]
   */
  constructor(detail, hint = "", status = 0) {
    super(detail);
    this.name = "Problem";
    this.hint = hint;
    this.status = status;
  }
}

/**
 * @param {Query} [query]
 * @returns {string} '' or '?a=1&b=2'
 */
export function queryText(query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === null || value === undefined || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) found.append(name, String(each));
  }
  const text = found.toString();
  return text && `?${text}`;
}

const RANKS = { reader: 0, operator: 1, admin: 2 };

/** @implements {DataSource} */
export class RestSource {
  /**
   * @param {string} base  The path below which the server is: '' or '/joblens'.
   * @param {Session} session
   * @param {() => void} onSignedOut
   */
  constructor(base, session, onSignedOut) {
    this.isLive = true;
    this.session = session;
    this._base = `${base}/api/v1`;
    this._onSignedOut = onSignedOut;
  }

  /** @type {DataSource["url"]} */
  url(path, query) {
    return this._base + path + queryText(query);
  }

  /** @type {DataSource["get"]} */
  get(path, query, options = {}) {
    return this._fetch(this.url(path, query), { signal: options.signal ?? null });
  }

  /** @type {DataSource["send"]} */
  send(method, path, body, options = {}) {
    /** @type {Record<string, string>} */
    const headers = { "x-csrf-token": this.session.csrf ?? "" };
    if (body !== undefined) headers["content-type"] = "application/json";
    const content = body === undefined ? null : JSON.stringify(body);
    return this._fetch(this.url(path), { method, headers, body: content, signal: options.signal ?? null });
  }

  /** @type {DataSource["follow"]} */
  follow(path, handlers) {
    return new EventFeed(this.url(path), handlers);
  }

  /** @type {DataSource["may"]} */
  may(role) {
    return RANKS[this.session.principal.role] >= RANKS[role];
  }

  /**
   * @param {string} url
   * @param {RequestInit} init
   */
  async _fetch(url, init) {
    /** @type {Response} */
    let response;
    try {
      response = await fetch(url, { credentials: "same-origin", ...init });
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") throw error;
      throw new Problem("the server does not answer", "check that `joblens serve` still runs");
    }
    if (response.ok) {
      const isJson = (response.headers.get("content-type") ?? "").includes("json");
      return isJson ? response.json() : response.text();
    }
    if (response.status === 401) this._onSignedOut();
    throw await problemOf(response);
  }
}

/** @param {Response} response */
async function problemOf(response) {
  try {
    const found = await response.json();
    return new Problem(found.detail || found.title || `status ${response.status}`, found.hint, response.status);
  } catch {
    return new Problem(`the server answered with status ${response.status}`, "", response.status);
  }
}
