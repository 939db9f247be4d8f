/** Job: what one job did and used, while it runs and afterwards, from the same answers. */

import { emptyBox, errorBox } from "../components/feedback.js";
import { isFinal } from "../components/state.js";
import { el, fill } from "../core/dom.js";
import { onLeave } from "../core/page.js";
import { Problem } from "../core/source.js";
import { poll } from "../core/stream.js";
import { AdviceCard } from "./job/advice.js";
import { ChartPanel } from "./job/charts.js";
import { EndpointsCard } from "./job/endpoints.js";
import { AttemptsCard, FactsCard } from "./job/facts.js";
import { FindingsCard } from "./job/findings.js";
import { Header } from "./job/header.js";
import { LogCard } from "./job/log.js";
import { NotesCard } from "./job/notes.js";
import { ProcessCard } from "./job/processes.js";
import { ProvenanceCard } from "./job/provenance.js";

const LIVE_MS = 1000;
const DETAILS_MS = 5000;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Job",
  nav: "jobs",
  async mount(context) {
    const view = new JobView(context);
    await view.load();
  },
};

class JobView {
  /** @param {import("../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this._path = `/jobs/${encodeURIComponent(context.params.job ?? "")}`;
    this._header = new Header(context, () => this._refresh());
    this._findings = new FindingsCard();
    this._charts = new ChartPanel(context, this._path, (at_us) => this._processes.point(at_us));
    this._log = new LogCard(context, this._path);
    this._processes = new ProcessCard();
    this._endpoints = new EndpointsCard();
    this._advice = new AdviceCard();
    this._facts = new FactsCard(context);
    this._attempts = new AttemptsCard(context);
    this._notes = new NotesCard(context, this._path, () => this._refresh());
    this._provenance = new ProvenanceCard();
    /** @type {Api.Record | null} */
    this._record = null;
    onLeave(context, () => this._charts.destroy());
  }

  async load() {
    const { source, root, signal, setTitle } = this._context;
    fill(root, el("p", { class: "muted", role: "status" }, "Loading the job…"));
    const charts = Promise.allSettled([this._charts.load()]); // they take longest; an error is shown in their place
    /** @type {Api.Record} */
    const record = await source.get(this._path, {}, { signal });
    setTitle(titleOf(record));
    fill(
      root,
      this._header.node,
      this._findings.node,
      this._charts.node,
      this._log.node,
      el("div", { class: "grid job-grid" }, this._processes.node, this._endpoints.node),
      el("div", { class: "grid job-grid" }, this._advice.node, this._notes.node, this._attempts.node),
      el("div", { class: "grid job-grid" }, this._facts.node, this._provenance.node),
    );
    this._show(record);
    await Promise.allSettled([charts, this._log.load(record)]);
    this._loadRest(record);
    if (source.isLive && !isFinal(record.status)) this._follow();
  }

  /** @param {Api.Record} record */
  _show(record) {
    this._record = record;
    this._header.show(record);
    this._findings.show(record);
    this._facts.show(record);
    this._notes.showTags(record);
  }

  /** Parts that nothing waits for; each says itself what is wrong with it. @param {Api.Record} record */
  _loadRest(record) {
    this._loadDetails(record);
    this._load("/advice", (/** @type {Api.OneJobAdvice} */ advice) => this._advice.show(advice), this._advice);
    this._load(
      "/annotations",
      (/** @type {Api.Annotations} */ notes) => this._notes.showNotes(notes.items),
      this._notes,
    );
    if (record.attempt?.provenance) {
      this._load(
        "/provenance",
        (/** @type {Api.Provenance} */ found) => this._provenance.show(found),
        this._provenance,
      );
    } else this._provenance.fail("None: the job never started, or `provenance.enabled` was false.");
    if (record.job.run) {
      this._load("/attempts", (/** @type {Api.Attempts} */ found) => this._attempts.show(found.items, record));
    }
  }

  /**
   * @param {string} part
   * @param {(answer: any) => void} show
   * @param {{ fail: (words: string) => void }} [card]
   */
  async _load(part, show, card) {
    const { source, signal } = this._context;
    try {
      show(await source.get(this._path + part, {}, { signal }));
    } catch (error) {
      if (!signal.aborted) card?.fail(error instanceof Error ? error.message : String(error));
    }
  }

  /** @param {Api.Record} record */
  _loadDetails(record) {
    const show = (/** @type {Api.Details} */ details) => {
      this._processes.show(details, record);
      this._endpoints.show(details);
    };
    const fail = (/** @type {string} */ words) => {
      this._processes.fail(words);
      this._endpoints.fail(words);
    };
    this._load("/details", show, { fail });
  }

  /** Asks for what is new until the job has ended. A break loses nothing: positions say where to continue. */
  _follow() {
    const { signal, setConnection } = this._context;
    const ended = new AbortController();
    signal.addEventListener("abort", () => ended.abort(), { once: true });
    let details_at = performance.now();
    poll(
      async () => {
        try {
          const charts = await this._charts.update();
          const { status } = charts;
          await this._log.update();
          this._header.tick(charts);
          if (status !== this._record?.status) await this._refresh();
          if (performance.now() - details_at > DETAILS_MS && this._record) {
            details_at = performance.now();
            this._loadDetails(this._record);
          }
          if (isFinal(status)) {
            setConnection("ended");
            ended.abort();
          }
        } catch (error) {
          if (!(error instanceof Problem) || error.status !== 404) throw error;
          ended.abort();
          this._showDeleted(error);
        }
      },
      LIVE_MS,
      ended.signal,
      (state, detail) => {
        if (!ended.signal.aborted) setConnection(state, detail);
      },
    );
  }

  /** Reads the record again, after a change. */
  async _refresh() {
    const { source, signal } = this._context;
    /** @type {Api.Record} */
    const record = await source.get(this._path, {}, { signal });
    this._show(record);
    this._loadRest(record);
    if (isFinal(record.status)) {
      await this._charts.load();
      await this._log.update();
    }
  }

  /** @param {Problem} error */
  _showDeleted(error) {
    const { root, href } = this._context;
    fill(root, errorBox(error), emptyBox("It may have been deleted.", el("a", { href: href("/jobs") }, "All jobs")));
  }
}

/** @param {Api.Record} record */
function titleOf(record) {
  return `${record.number ?? ""} ${record.job.name ?? ""}`.trim().slice(0, 80);
}
