/** Network endpoints of a job: with whom it talked. */

import { card } from "../../components/card.js";
import { plainTable, scrolled } from "../../components/plain-table.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

export class EndpointsCard {
  constructor() {
    this._body = el("div", { class: "card-body" }, el("p", { class: "muted" }, "Loading…"));
    this.node = card("Network endpoints", null, this._body);
  }

  /** @param {Api.Details} details */
  show(details) {
    const table = details.endpoints;
    const endpoints = table?.endpoints ?? [];
    if (endpoints.length === 0) {
      const why = details.unknown?.endpoints;
      const words = why ? `Not measured: ${why}.` : table ? "The job opened no connection." : "None seen.";
      this.fail(words);
      return;
    }
    fill(
      this._body,
      scrolled(
        "Network endpoints",
        plainTable(
          ["Address", "Received", "Sent", "Sockets", "Round trip"],
          endpoints.map((each) => [
            [
              el("span", { class: "mono" }, addressOf(each)),
              " ",
              el("span", { class: "muted" }, each.is_listener ? `${each.protocol}, accepts` : each.protocol),
            ],
            format.bytes(each.rx_bytes),
            format.bytes(each.tx_bytes),
            format.count(each.sockets ?? 0),
            roundTrip(each.rtt_usec),
          ]),
        ),
      ),
      (table?.seen ?? 0) > endpoints.length
        ? el("p", { class: "muted" }, `The busiest of ${format.count(table?.seen)}.`)
        : null,
    );
  }

  /** @param {string} words */
  fail(words) {
    fill(this._body, el("p", { class: "muted" }, words));
  }
}

/** In the digits of the command line: those of a local network take microseconds. @param {number | null | undefined} usec */
function roundTrip(usec) {
  return usec === null || usec === undefined ? format.UNKNOWN : `${(usec / 1000).toFixed(2)}ms`;
}

/** @param {Api.Endpoint} endpoint */
function addressOf(endpoint) {
  const { address, port } = endpoint;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
