/** Tags and notes that people attach to a job. */

import { card } from "../../components/card.js";
import { toast, wordsOf } from "../../components/feedback.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

export class NotesCard {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {string} path  Of the job.
   * @param {() => Promise<void>} onChanged
   */
  constructor(context, path, onChanged) {
    this._context = context;
    this._path = path;
    this._onChanged = onChanged;
    this._tags = el("div", { class: "chips" });
    this._notes = el("ul", { class: "job-notes" });
    const may = context.source.isLive && context.source.may("operator");
    this.node = card(
      "Tags and notes",
      null,
      el(
        "div",
        { class: "card-body stack" },
        this._tags,
        may ? this._form("Add a tag", "model=large", (text) => this._tag({ add: [text] })) : null,
        this._notes,
        may ? this._form("Add a note", "what to remember", (text) => this._note(text)) : null,
      ),
    );
  }

  /** @param {Api.Record} record */
  showTags(record) {
    const tags = record.job.tags ?? [];
    const { source } = this._context;
    const may = source.isLive && source.may("operator");
    fill(
      this._tags,
      tags.length ? null : el("span", { class: "muted" }, "No tags."),
      tags.map((tag) =>
        el(
          "span",
          { class: "chip" },
          el("bdi", null, tag),
          may
            ? el(
                "button",
                {
                  type: "button",
                  class: "plain chip-remove",
                  "aria-label": `Remove the tag ${tag}`,
                  onclick: () => this._tag({ remove: [tag] }),
                },
                "×",
              )
            : null,
        ),
      ),
    );
  }

  /** @param {readonly Api.Annotation[]} notes */
  showNotes(notes) {
    fill(
      this._notes,
      notes.length ? null : el("li", { class: "muted" }, "No notes."),
      notes.map((note) =>
        el(
          "li",
          null,
          el("p", { class: "note-text" }, note.text),
          el("span", { class: "muted" }, `${note.author || "unknown"}, ${format.time(note.at_us)}`),
        ),
      ),
    );
  }

  /** @param {string} words */
  fail(words) {
    fill(this._notes, el("li", { class: "muted" }, words));
  }

  /**
   * @param {string} label
   * @param {string} placeholder
   * @param {(text: string) => Promise<void>} act
   */
  _form(label, placeholder, act) {
    const input = el("input", { type: "text", placeholder, "aria-label": label, maxlength: "2000" });
    const form = el("form", { class: "inline-form" }, input, el("button", null, label));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (!text) return;
      try {
        await act(text);
        input.value = "";
      } catch (error) {
        toast(wordsOf(error), "error");
      }
    });
    return form;
  }

  /** @param {{ add?: string[], remove?: string[] }} change */
  async _tag(change) {
    /** @type {Api.Record} */
    const record = await this._context.source.send("POST", `${this._path}/tags`, change);
    this.showTags(record);
    await this._onChanged();
  }

  /** @param {string} text */
  async _note(text) {
    await this._context.source.send("POST", `${this._path}/annotations`, { text });
    await this._onChanged();
  }
}
