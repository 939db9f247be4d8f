/** The frame around every page: skip link, navigation, connection state, theme, who is signed in. */

import { el, fill } from "../core/dom.js";
import { timeZone } from "../core/format.js";
import { forgetColours } from "./sparkline.js";

/**
 * @typedef {object} Entry
 * @property {string} path
 * @property {string} label
 * @property {string} nav  Pages with it mark this entry, or the page with this path.
 * @property {"admin"} [role]  Only for those who may.
 */

/** @type {readonly Entry[]} */
const ENTRIES = [
  { path: "/", label: "Overview", nav: "overview" },
  { path: "/jobs", label: "Jobs", nav: "jobs" },
  { path: "/runs", label: "Runs", nav: "runs" },
  { path: "/compare", label: "Compare", nav: "compare" },
  { path: "/queue", label: "Queue", nav: "queue" },
  { path: "/nodes", label: "Nodes", nav: "nodes" },
  { path: "/benchmarks", label: "Benchmarks", nav: "benchmarks" },
  { path: "/settings", label: "Settings", nav: "settings" },
  { path: "/tokens", label: "Tokens", nav: "tokens", role: "admin" },
  { path: "/audit", label: "Audit log", nav: "audit", role: "admin" },
];

const THEMES = ["auto", "light", "dark"];

/** @type {Record<string, string>} */
const STATES = {
  connecting: "Connecting…",
  live: "Live",
  waiting: "Reconnecting…",
  ended: "Ended",
};

export class Frame {
  /**
   * @param {import("../core/source.js").DataSource} source
   * @param {(path: string) => string} href
   * @param {{ entries?: Entry[], foot?: string }} [own]  Of a report: its own navigation, and what it is.
   */
  constructor(source, href, own = {}) {
    this._source = source;
    this._main = el("main", { id: "main", tabindex: "-1" });
    const entries = ENTRIES.filter((entry) => !entry.role || source.may(entry.role));
    this._links = (own.entries ?? entries).map((entry) =>
      el("a", { href: href(entry.path), data: { nav: entry.nav } }, entry.label),
    );
    this._connection = el("span", { class: "connection", data: { state: "ended" } });
    const brand = el("a", { class: "brand", href: href("/") }, "joblens");
    const nav = el("nav", { "aria-label": "Pages" }, this._links);
    const right = el(
      "div",
      { class: "frame-right" },
      this._connection,
      themeButton(),
      source.isLive ? this._account() : null,
    );
    const skip = el("a", { class: "skip", href: "#main" }, "Skip to content");
    skip.addEventListener("click", (event) => {
      event.preventDefault();
      this._main.focus();
    });
    this.node = el(
      "div",
      { class: "frame" },
      skip,
      el("header", { class: "frame-head" }, brand, nav, right),
      this._main,
      el(
        "footer",
        { class: "frame-foot" },
        [own.foot, `joblens ${source.session.version}`, `times in ${timeZone()}`].filter(Boolean).join(" · "),
      ),
    );
  }

  /**
   * An empty element for the next page.
   * @param {string} nav
   * @param {string} path
   */
  newRoot(nav, path) {
    for (const link of this._links) {
      if (link.dataset.nav === nav || link.dataset.nav === path) {
        link.setAttribute("aria-current", "page");
        showWithin(link);
      } else link.removeAttribute("aria-current");
    }
    const root = el("div", { class: "page" });
    fill(this._main, root);
    this.setConnection("ended", "");
    return root;
  }

  /** @param {string} text */
  setTitle(text) {
    document.title = `${text} · joblens`;
  }

  /**
   * @param {import("../core/stream.js").FeedState} state
   * @param {string} detail
   */
  setConnection(state, detail) {
    const words = state === "ended" ? "" : (STATES[state] ?? state);
    if (this._connection.dataset.state === state && this._connection.title === detail) return;
    this._connection.dataset.state = state;
    this._connection.title = detail;
    fill(this._connection, words);
    if (state === "waiting") this._connection.setAttribute("role", "status");
  }

  _account() {
    const { principal, csrf } = this._source.session;
    const button = el("button", { type: "button", class: "plain" }, "Sign out");
    button.addEventListener("click", async () => {
      const signOut = this._source.url("").replace(/\/api\/v1$/, "/sign-out");
      await fetch(signOut, { method: "POST", headers: { "x-csrf-token": csrf ?? "" }, redirect: "manual" });
      location.assign(signOut.replace(/sign-out$/, "sign-in"));
    });
    const who = el("span", { class: "who", title: `${principal.role}, sees ${principal.scope}` }, principal.name);
    return el("div", { class: "account" }, who, csrf ? button : null);
  }
}

/**
 * Scrolls a row of links, which is longer than a phone, so that one of them is visible.
 * @param {HTMLElement} link
 */
function showWithin(link) {
  requestAnimationFrame(() => {
    const row = link.parentElement;
    if (row && row.scrollWidth > row.clientWidth) {
      row.scrollLeft = link.offsetLeft - row.offsetLeft - (row.clientWidth - link.offsetWidth) / 2;
    }
  });
}

function themeButton() {
  const root = document.documentElement;
  let theme = saved() ?? "auto";
  root.dataset.theme = theme;
  const button = el("button", { type: "button", class: "plain theme" });
  const label = () => {
    fill(button, theme === "auto" ? "◐" : theme === "light" ? "☀" : "☾");
    button.setAttribute("aria-label", `Theme: ${theme}`);
    button.title = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
    root.dataset.theme = theme;
    try {
      localStorage.setItem("joblens-theme", theme);
    } catch {
      // a report from a file, or a browser that keeps nothing
    }
    forgetColours();
    window.dispatchEvent(new Event("joblens-theme"));
    label();
  });
  label();
  return button;
}

function saved() {
  try {
    return localStorage.getItem("joblens-theme");
  } catch {
    return null;
  }
}
