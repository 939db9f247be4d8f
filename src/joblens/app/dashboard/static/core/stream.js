/** Event streams of the server, resumed behind the last event after a break, with a visible connection state. */

/**
 * @typedef {"connecting" | "live" | "waiting" | "ended"} FeedState
 * @typedef {object} Handlers
 * @property {Record<string, (data: any, id: string) => void>} events  By event name.
 * @property {(state: FeedState, detail: string) => void} [onState]
 * @property {(data: any) => void} [onEnd]  Nothing more will come.
 * @property {(data: any) => void} [onReset]  Earlier events are void.
 */

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/** An EventSource that comes back with its last event id, whatever ended the connection. */
export class EventFeed {
  /**
   * @param {string} url
   * @param {Handlers} handlers
   */
  constructor(url, handlers) {
    this._url = url;
    this._handlers = handlers;
    this._lastId = "";
    this._pauseMs = FIRST_PAUSE_MS;
    /** @type {EventSource | null} */
    this._source = null;
    /** @type {number | undefined} */
    this._timer = undefined;
    this._isClosed = false;
    this._connect();
  }

  close() {
    this._isClosed = true;
    clearTimeout(this._timer);
    this._source?.close();
  }

  _connect() {
    this._state("connecting", "");
    const mark = this._url.includes("?") ? "&" : "?";
    const source = new EventSource(this._lastId ? `${this._url}${mark}after=${this._lastId}` : this._url);
    this._source = source;
    source.onopen = () => {
      this._pauseMs = FIRST_PAUSE_MS;
      this._state("live", "");
    };
    // The browser's own retry gives up after some errors: one way back for all of them.
    source.onerror = () => this._comeBack("connection lost");
    for (const [name, handle] of Object.entries(this._handlers.events)) {
      source.addEventListener(name, (event) => {
        if (event.lastEventId) this._lastId = event.lastEventId;
        handle(JSON.parse(event.data), event.lastEventId);
      });
    }
    source.addEventListener("reset", (event) => {
      this._lastId = "";
      this._handlers.onReset?.(JSON.parse(event.data));
    });
    source.addEventListener("end", (event) => {
      this.close();
      this._state("ended", "");
      this._handlers.onEnd?.(JSON.parse(event.data));
    });
    source.addEventListener("disconnect", (event) => this._comeBack(JSON.parse(event.data).reason));
  }

  /** @param {string} reason */
  _comeBack(reason) {
    if (this._isClosed) return;
    this._source?.close();
    clearTimeout(this._timer);
    this._state("waiting", reason);
    this._timer = setTimeout(() => this._connect(), this._pauseMs * (0.75 + Math.random() / 2));
    this._pauseMs = Math.min(LONGEST_PAUSE_MS, this._pauseMs * 2);
  }

  /**
   * @param {FeedState} state
   * @param {string} detail
   */
  _state(state, detail) {
    this._handlers.onState?.(state, detail);
  }
}

/**
 * Polls one address while the page is visible; an error lengthens the pause. For lists that have no stream.
 * @param {() => Promise<void>} ask
 * @param {number} everyMs
 * @param {AbortSignal} signal
 * @param {(state: FeedState, detail: string) => void} onState
 */
export async function poll(ask, everyMs, signal, onState) {
  let pauseMs = everyMs;
  while (!signal.aborted) {
    const began = performance.now();
    try {
      await ask();
      pauseMs = everyMs;
      onState("live", "");
    } catch (error) {
      if (signal.aborted) return;
      pauseMs = Math.min(LONGEST_PAUSE_MS, pauseMs * 2);
      onState("waiting", error instanceof Error ? error.message : String(error));
    }
    await pause(Math.max(50, pauseMs - (performance.now() - began)), signal);
    while (document.hidden && !signal.aborted) await nextVisible(signal);
  }
}

/**
 * Waits, or returns at once when the signal comes.
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(done, ms);
    signal.addEventListener("abort", done, { once: true });
    function done() {
      clearTimeout(timer);
      signal.removeEventListener("abort", done);
      resolve();
    }
  });
}

/**
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function nextVisible(signal) {
  return new Promise((resolve) => {
    document.addEventListener("visibilitychange", () => resolve(), { once: true, signal });
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
}
