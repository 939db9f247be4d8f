/** Overview: failures first, running jobs with live numbers, machines, queue, workers, today against last week. */

import { el, fill } from "../core/dom.js";
import { poll } from "../core/stream.js";
import { showFailures } from "./overview/failures.js";
import { LiveRows } from "./overview/live-rows.js";
import { showMachines } from "./overview/machines.js";
import { showQueue } from "./overview/queue.js";
import { midnight, Tiles } from "./overview/tiles.js";

const LIVE_MS = 1000;
const SLOW_MS = 10_000;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Overview",
  nav: "overview",
  mount(context) {
    const { root, source, signal } = context;
    const live = new LiveRows(context);
    const tiles = new Tiles(context);
    const failures = el("section", { class: "card", "aria-label": "Failures", hidden: true });
    const machines = el("div", { class: "card-body machines" });
    const queue = el("section", { class: "card", "aria-label": "Queue and workers", hidden: true });
    fill(
      root,
      el("h1", { class: "visually-hidden" }, "Overview"),
      tiles.node,
      failures,
      el(
        "section",
        { class: "card", "aria-label": "Running jobs" },
        el("div", { class: "card-head" }, el("h2", null, "Running and queued"), live.count),
        live.table.node,
      ),
      el(
        "div",
        { class: "grid" },
        el(
          "section",
          { class: "card", "aria-label": "Machines" },
          el("div", { class: "card-head" }, el("h2", null, "Machines")),
          machines,
        ),
        queue,
      ),
    );
    let turn = 0;
    poll(
      async () => {
        /** @type {Api.LiveAnswer} */
        const answer = await source.get("/live", { since: turn }, { signal });
        turn = answer.turn;
        live.take(answer);
        tiles.showLive(answer);
        showMachines(machines, answer.machines);
      },
      LIVE_MS,
      signal,
      context.setConnection,
    );
    poll(
      async () => {
        try {
          /** @type {Api.Overview} */
          const answer = await source.get("/overview", { midnight_us: midnight() }, { signal });
          showFailures(failures, answer.failures, context);
          showQueue(queue, answer);
          if (answer.days) tiles.showDays(answer.days);
        } catch (error) {
          if (!signal.aborted) tiles.showProblem(error);
          throw error;
        }
      },
      SLOW_MS,
      signal,
      () => {},
    );
  },
};
