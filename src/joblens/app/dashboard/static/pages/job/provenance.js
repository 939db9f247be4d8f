/** Provenance: code, programs, packages and machine that a job ran with. */

import { card } from "../../components/card.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";
import { factList, moreFacts } from "./facts.js";

export class ProvenanceCard {
  constructor() {
    this._body = el("div", { class: "card-body stack" }, el("p", { class: "muted" }, "Loading…"));
    this.node = card("Provenance", null, this._body);
  }

  /** @param {Api.Provenance} found */
  show(found) {
    const { code, hardware = {} } = found;
    fill(
      this._body,
      factList([
        ["Commit", code ? el("span", { class: "mono" }, code.commit) : ""],
        ["Changes", code ? changesOf(code) : ""],
        ["Branch", code?.branch ?? ""],
        ["Repository", code?.remote || code?.root || ""],
        ["Host", found.host ?? ""],
        ["System", found.system ?? ""],
        ["Kernel", found.kernel ?? ""],
        ["Processor", processorOf(hardware)],
        ["Memory", hardware.memory_bytes ? format.bytes(hardware.memory_bytes) : ""],
        ["GPUs", (hardware.gpus ?? []).join(", ")],
      ]),
      moreFacts(
        "Programs",
        (found.programs ?? []).map((each) => [
          each.path,
          [each.version, each.sha256 ? `sha256 ${each.sha256.slice(0, 16)}…` : ""].filter(Boolean).join(", ") || "-",
        ]),
      ),
      moreFacts("Versions", Object.entries(found.versions ?? {})),
      moreFacts("Environment", Object.entries(found.environment ?? {})),
      moreFacts("Limits of the system", Object.entries(found.limits ?? {})),
      moreFacts("Unknown, and why", Object.entries(found.unknown ?? {})),
    );
  }

  /** @param {string} words */
  fail(words) {
    fill(this._body, el("p", { class: "muted" }, words));
  }
}

/** @param {Api.CodeVersion} code */
function changesOf(code) {
  if (code.is_dirty === null || code.is_dirty === undefined) return "not checked";
  return code.is_dirty ? "uncommitted changes" : "none";
}

/** @param {Api.Hardware} hardware */
function processorOf(hardware) {
  return [hardware.cpu_model, hardware.cpus ? `${hardware.cpus} CPUs` : "", hardware.architecture]
    .filter(Boolean)
    .join(", ");
}
