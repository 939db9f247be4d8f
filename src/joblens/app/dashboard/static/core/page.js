/** The contract of a page: one module exports one `Page`, one line in `main.js` gives it a path. */

/**
 * @typedef {object} Page
 * @property {string} title
 * @property {string} [nav]  The navigation entry that is marked; '' for none.
 * @property {(context: Context) => void | Promise<void>} mount  Fills `context.root`. Everything it starts ends with
 *     `context.signal`. An error is shown in place of the page.
 *
 * @typedef {object} Context
 * @property {HTMLElement} root
 * @property {import("./source.js").DataSource} source
 * @property {Record<string, string>} params  Of the path.
 * @property {URLSearchParams} query  A copy of the address' query.
 * @property {AbortSignal} signal  Aborted when the reader leaves the page.
 * @property {(changes: Record<string, string | string[] | null>) => void} setQuery  Changes the address only;
 *     null removes.
 * @property {(path: string, query?: URLSearchParams | null) => void} go
 * @property {(path: string, query?: URLSearchParams | null) => string} href  '' for a page that a report does not
 *     have: `el` makes text of it.
 * @property {(text: string) => void} setTitle
 * @property {(state: import("./stream.js").FeedState, detail?: string) => void} setConnection
 */

/**
 * Cleans up when the reader leaves the page.
 * @param {Context} context
 * @param {() => void} clean
 */
export function onLeave(context, clean) {
  context.signal.addEventListener("abort", clean, { once: true });
}

/**
 * A copy of a query with changes.
 * @param {URLSearchParams} query
 * @param {Record<string, string | string[] | null>} changes
 */
export function changed(query, changes) {
  const next = new URLSearchParams(query);
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    if (value === null || value === "") continue;
    for (const each of Array.isArray(value) ? value : [value]) next.append(name, each);
  }
  return next;
}
