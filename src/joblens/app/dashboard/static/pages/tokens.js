/** Tokens: create, rotate and revoke access of programs and people. A secret is shown once. */

import { card, pageHead } from "../components/card.js";
import { confirmDialog, copyLine, errorBox, toast, wordsOf } from "../components/feedback.js";
import { PagedTable } from "../components/paged.js";
import { stateBadge } from "../components/state.js";
import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";

/** @typedef {Api.ShownToken} Token */

/** @type {[string, number | null][]} */
const LIFETIMES = [
  ["1 day", 86_400],
  ["30 days", 30 * 86_400],
  ["1 year", 365 * 86_400],
  ["no end", null],
];
const OVERLAP_S = 3600;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Tokens",
  nav: "tokens",
  async mount(context) {
    const { root, source, signal } = context;
    if (!source.may("admin")) {
      fill(root, pageHead("Tokens"), errorBox("Only administrators can manage tokens"));
      return;
    }
    const secret = el("div", { "aria-live": "polite" });
    const ended = el("input", { type: "checkbox" });
    /** @type {PagedTable<Token>} */
    const list = new PagedTable({
      load: async (after) => {
        /** @type {Api.Tokens} */
        const found = await source.get("/tokens", { limit: 200, after }, { signal });
        return ended.checked ? found : { ...found, items: found.items.filter((token) => stateOf(token) === "valid") };
      },
      table: {
        label: "Tokens",
        rowKey: (token) => token.id,
        empty: "No token. Create one above.",
        rowHeight: 42,
        columns: columns(
          (token) => rotate(token),
          (token) => revoke(token),
        ),
      },
    });
    list.table.node.classList.add("tokens-table");
    ended.addEventListener("change", () => list.reload());
    const showSecret = (/** @type {Api.ShownNewToken} */ made) => {
      fill(
        secret,
        el(
          "div",
          { class: "notice new-secret" },
          el("strong", null, `Token ${made.token.name} (${made.token.id})`),
          el("p", null, "Copy it now: it is not stored and cannot be shown again."),
          copyLine(made.secret, "token"),
          el("button", { type: "button", onclick: () => fill(secret) }, "Done"),
        ),
      );
      secret.querySelector("code")?.focus();
    };
    /** @param {Token} token */
    async function rotate(token) {
      const answer = await confirmDialog({
        title: `Rotate ${token.name}?`,
        text: "Creates a new token with the same rights; the old one works for one more hour.",
        action: "Rotate",
      });
      if (answer === null) return;
      await change(async () =>
        showSecret(await source.send("POST", `/tokens/${token.id}/rotate`, { overlap_s: OVERLAP_S })),
      );
    }
    /** @param {Token} token */
    async function revoke(token) {
      const answer = await confirmDialog({
        title: `Revoke ${token.name}?`,
        text: "Programs that use it are refused within a second. This cannot be undone.",
        action: "Revoke",
        isDangerous: true,
      });
      if (answer === null) return;
      await change(async () => {
        await source.send("DELETE", `/tokens/${token.id}`);
        toast(`${token.name} is revoked`);
      });
    }
    /** @param {() => Promise<void>} act */
    async function change(act) {
      try {
        await act();
        await list.reload();
      } catch (error) {
        toast(wordsOf(error), "error");
      }
    }
    fill(
      root,
      pageHead("Tokens"),
      secret,
      card(
        "New token",
        null,
        form((body) => change(async () => showSecret(await source.send("POST", "/tokens", body)))),
      ),
      card(
        "Tokens",
        [el("span", { class: "grow" }), el("label", { class: "check-label" }, ended, "with expired and revoked ones")],
        list.node,
      ),
    );
    await list.reload();
  },
};

/** @param {(body: object) => Promise<void>} create */
function form(create) {
  const name = el("input", {
    type: "text",
    required: true,
    maxlength: "100",
    placeholder: "ci",
    pattern: "[\\w .@\\-]+",
  });
  const user = el("input", { type: "text", maxlength: "100", placeholder: "you", pattern: "[\\w.@\\-]*" });
  const role = choice(["reader", "operator", "admin"]);
  const scope = choice(["own", "all"]);
  const life = el(
    "select",
    null,
    LIFETIMES.map(([label], index) => el("option", { value: String(index), selected: index === 1 }, label)),
  );
  const node = el(
    "form",
    { class: "token-form card-body" },
    el("label", null, "Name", name),
    el("label", null, "Acts as user", user),
    el("label", null, "Role", role),
    el("label", null, "Sees jobs of", scope),
    el("label", null, "Valid for", life),
    el("button", { class: "primary" }, "Create token"),
  );
  node.addEventListener("submit", async (event) => {
    event.preventDefault();
    await create({
      name: name.value.trim(),
      user: user.value.trim(),
      role: role.value,
      scope: scope.value,
      lifetime_s: LIFETIMES[Number(life.value)]?.[1] ?? null,
    });
    name.value = "";
  });
  return node;
}

/** @param {string[]} words */
function choice(words) {
  return el(
    "select",
    null,
    words.map((word) => el("option", { value: word }, word)),
  );
}

/** @param {Token} token */
function stateOf(token) {
  if (token.revoked_at_us !== null) return "revoked";
  return token.expires_at_us !== null && token.expires_at_us <= Date.now() * 1000 ? "expired" : "valid";
}

/**
 * @param {(token: Token) => void} rotate
 * @param {(token: Token) => void} revoke
 * @returns {import("../components/table.js").Column<Token>[]}
 */
function columns(rotate, revoke) {
  return [
    {
      id: "name",
      label: "Name",
      key: (token) => token.name,
      cell: (token) => [el("strong", null, token.name), " ", el("code", { class: "muted" }, token.id)],
    },
    {
      id: "state",
      label: "State",
      width: 7.4,
      key: stateOf,
      cell: (token) => stateBadge(...badge(stateOf(token))),
    },
    {
      id: "user",
      label: "User",
      width: 7.9,
      needs: "wide",
      key: (token) => token.user,
      cell: (token) => token.user,
    },
    {
      id: "rights",
      label: "Rights",
      width: 10.7,
      key: (token) => `${token.role} ${token.scope}`,
      cell: (token) => `${token.role}, ${token.scope} jobs`,
    },
    {
      id: "created",
      label: "Created",
      width: 7.9,
      needs: "wide",
      key: (token) => String(token.created_at_us),
      cell: (token) => moment(token.created_at_us),
    },
    {
      id: "expires",
      label: "Expires",
      width: 12.4,
      needs: "wide",
      key: (token) => String(token.expires_at_us),
      cell: (token) => (token.expires_at_us === null ? "never" : format.time(token.expires_at_us)),
    },
    {
      id: "used",
      label: "Last used",
      width: 7.9,
      needs: "wide",
      key: (token) => String(token.used_at_us),
      cell: (token) => (token.used_at_us === null ? "never" : moment(token.used_at_us)),
    },
    {
      id: "actions",
      label: "Actions",
      width: 12.6,
      key: stateOf,
      cell: (token) =>
        stateOf(token) === "valid"
          ? [
              el(
                "button",
                { type: "button", class: "small", "aria-label": `Rotate ${token.name}`, onclick: () => rotate(token) },
                "Rotate",
              ),
              " ",
              el(
                "button",
                { type: "button", class: "small", "aria-label": `Revoke ${token.name}`, onclick: () => revoke(token) },
                "Revoke",
              ),
            ]
          : "",
    },
  ];
}

/**
 * @param {string} state
 * @returns {[string, string]}
 */
function badge(state) {
  return state === "valid"
    ? ["success", "valid"]
    : state === "expired"
      ? ["timeout", "expired"]
      : ["cancelled", "revoked"];
}

/** @param {number} us */
function moment(us) {
  return el("span", { title: format.time(us) }, format.ago(us));
}
