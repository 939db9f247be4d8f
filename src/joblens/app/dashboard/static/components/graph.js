/**
 * Graph of a run in SVG: boxes in stages, coloured by state, with a shape and a word. Keyboard: left and right follow
 * dependencies, up and down stay in the stage, Enter opens, Space opens or closes a group.
 */

import { el, fill, setText, svg } from "../core/dom.js";
import * as format from "../core/format.js";
import { textScale } from "./canvas.js";
import { STATE_ORDER } from "./run-rows.js";
import { shapeOf, toneOf } from "./state.js";

const HEIGHT = 34;
const LONGEST = 30;
const SMALLEST = 0.6;
const ZOOMS = [0.4, 0.55, 0.75, 1, 1.3, 1.7];

/**
 * @typedef {object} GraphOptions
 * @property {string} label
 * @property {(box: Api.GraphBox) => void} onOpen  A job, or a group to be opened or closed.
 * @property {(box: Api.GraphBox) => void} [onSelect]
 *
 * @typedef {object} DrawnBox
 * @property {Api.GraphBox} box
 * @property {SVGGElement} node
 * @property {SVGRectElement} frame
 * @property {SVGPathElement} shape
 * @property {SVGGElement} bar
 * @property {SVGTitleElement} title
 * @property {string} stamp
 */

export class GraphView {
  /** @param {GraphOptions} options */
  constructor(options) {
    this._options = options;
    /** @type {DrawnBox[]} */
    this._boxes = [];
    /** @type {readonly Api.GraphEdge[]} */
    this._edges = [];
    /** @type {SVGPathElement[]} */
    this._paths = [];
    /** @type {ReadonlySet<number>} */
    this._opened = new Set();
    this._active = 0;
    this._zoom = 1;
    this._size = { width: 0, height: 0 };
    this._svg = svg("svg", { class: "graph", role: "group", "aria-label": options.label });
    this._scroll = el("div", { class: "graph-scroll" }, this._svg);
    this._zoomed = el("span", { class: "muted number" }, "100%");
    this.tools = el(
      "span",
      { class: "graph-tools" },
      button("−", "Smaller", () => this._step(-1)),
      this._zoomed,
      button("+", "Larger", () => this._step(1)),
      button("Fit", "Fit into the view", () => this.fit()),
    );
    this.node = this._scroll;
    this._svg.addEventListener("keydown", (event) => this._onKey(/** @type {KeyboardEvent} */ (event)));
  }

  /**
   * @param {Api.RunGraph} graph
   * @param {readonly number[]} opened  Groups that are shown job by job.
   */
  setGraph(graph, opened) {
    const before = this._boxes[this._active]?.box;
    const hadFocus = this._svg.contains(document.activeElement);
    this._opened = new Set(opened);
    this._edges = graph.edges;
    this._size = { width: graph.width, height: graph.height };
    this._paths = graph.edges.map((edge) => svg("path", { class: "edge", d: curve(edge.points) }));
    this._boxes = graph.boxes.map((box, place) => this._draw(box, place));
    fill(
      this._svg,
      svg(
        "defs",
        null,
        svg(
          "marker",
          {
            id: "tip",
            viewBox: "0 0 8 8",
            refX: "7.5",
            refY: "4",
            markerWidth: "6",
            markerHeight: "6",
            orient: "auto",
          },
          svg("path", { d: "M0 0.5L8 4L0 7.5z", class: "tip" }),
        ),
      ),
      svg("g", { "aria-hidden": "true" }, this._paths),
      this._boxes.map((each) => each.node),
    );
    const same = before
      ? this._boxes.findIndex(({ box }) => box.group === before.group && box.index === before.index)
      : 0;
    const near = same >= 0 ? same : this._boxes.findIndex(({ box }) => box.group === before?.group);
    this._activate(Math.max(0, near), hadFocus);
    this._scale();
  }

  /** @param {Record<string, number>[]} states  Of each box. */
  setStates(states) {
    this._boxes.forEach((drawn, place) => {
      const counts = states[place] ?? {};
      const stamp = JSON.stringify(counts);
      if (drawn.stamp === stamp) return;
      drawn.stamp = stamp;
      this._paint(drawn, counts);
    });
  }

  /** Shows the whole width, as far as words stay readable. */
  fit() {
    const share = (this._scroll.clientWidth - 8) / Math.max(1, this._size.width);
    this._zoom = Math.min(textScale(), Math.max(share, SMALLEST));
    this._scale();
  }

  /** @param {number} by */
  _step(by) {
    const next =
      by > 0 ? ZOOMS.find((zoom) => zoom > this._zoom + 0.01) : ZOOMS.findLast((zoom) => zoom < this._zoom - 0.01);
    this._zoom = next ?? this._zoom;
    this._scale();
  }

  _scale() {
    const { width, height } = this._size;
    this._svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this._svg.setAttribute("width", String(Math.round(width * this._zoom)));
    this._svg.setAttribute("height", String(Math.round(height * this._zoom)));
    fill(this._zoomed, `${Math.round(this._zoom * 100)}%`);
  }

  /**
   * @param {Api.GraphBox} box
   * @param {number} place
   * @returns {DrawnBox}
   */
  _draw(box, place) {
    const isGroup = box.index === null || box.index === undefined;
    const top = box.y - HEIGHT / 2;
    const size = { width: box.width, height: HEIGHT, rx: 7 };
    const frame = svg("rect", { class: "box", x: box.x, y: top, ...size });
    const shape = svg("path", { class: "shape", transform: `translate(${box.x + 9} ${box.y - 6.5}) scale(1.3)` });
    const bar = svg("g", { class: "states" });
    const title = svg("title");
    const words = box.title.length > LONGEST ? `${box.title.slice(0, LONGEST - 1)}…` : box.title;
    const text = svg("text", { x: box.x + 28, y: box.y + (isGroup ? 1 : 4) }, words);
    if (isGroup) text.append(svg("tspan", { class: "times", dx: 6 }, `×${format.count(box.jobs)}`));
    const node = svg(
      "g",
      { class: "node", tabindex: place === 0 ? "0" : "-1", role: isGroup ? "button" : "link" },
      title,
      isGroup ? svg("rect", { class: "behind", x: box.x + 4, y: top + 4, ...size }) : null,
      frame,
      bar,
      shape,
      text,
    );
    node.addEventListener("click", () => {
      this._activate(place, true);
      this._options.onOpen(box);
    });
    node.addEventListener("focus", () => {
      this._activate(place, false);
      this._mark(place);
    });
    node.addEventListener("mouseenter", () => this._mark(place));
    return { box, node, frame, shape, bar, title, stamp: "" };
  }

  /**
   * @param {DrawnBox} drawn
   * @param {Record<string, number>} counts
   */
  _paint(drawn, counts) {
    const { box, node } = drawn;
    const isGroup = box.index === null || box.index === undefined;
    const states = STATE_ORDER.filter((state) => counts[state]);
    const loudest = states.find((state) => state !== "completed" && state !== "disabled") ?? states[0] ?? "waiting";
    const tone = toneOf(loudest);
    node.setAttribute("class", `node tone-${tone}`);
    drawn.shape.setAttribute("d", shapeOf(tone));
    const parts = states.map((state) => `${format.count(counts[state])} ${state.replaceAll("_", " ")}`);
    const words = isGroup
      ? `${format.counted(box.jobs, "job")}: ${parts.join(", ")}`
      : (states[0] ?? "").replaceAll("_", " ");
    setText(drawn.title, `${box.title}\n${words}`);
    const needs = this._edges.filter((edge) => this._boxes[edge.target] === drawn).length;
    const action = isGroup ? ", Enter opens the group" : "";
    node.setAttribute(
      "aria-label",
      `${box.title}, ${words}, stage ${box.stage + 1}${needs ? `, needs ${needs}` : ""}${action}`,
    );
    fill(drawn.bar);
    if (!isGroup) return;
    let x = box.x + 28;
    const width = box.width - 38;
    for (const state of states) {
      const share = Math.max(1.5, (width * (counts[state] ?? 0)) / Math.max(1, box.jobs));
      drawn.bar.append(
        svg("rect", { class: `tone-${toneOf(state)}`, x, y: box.y + 7, width: Math.min(share, width), height: 5 }),
      );
      x += share;
    }
  }

  /** Highlights the box and its arrows. @param {number} place */
  _mark(place) {
    this._paths.forEach((path, number) => {
      const edge = this._edges[number];
      path.classList.toggle("is-near", edge?.source === place || edge?.target === place);
    });
    const box = this._boxes[place]?.box;
    if (box) this._options.onSelect?.(box);
  }

  /**
   * @param {number} place
   * @param {boolean} takesFocus
   */
  _activate(place, takesFocus) {
    this._boxes[this._active]?.node.setAttribute("tabindex", "-1");
    this._active = place;
    const node = this._boxes[place]?.node;
    node?.setAttribute("tabindex", "0");
    if (!takesFocus || !node) return;
    node.focus({ preventScroll: true });
    this._reveal(place);
  }

  /** Scrolls the graph, never the page. @param {number} place */
  _reveal(place) {
    const box = this._boxes[place]?.box;
    if (!box) return;
    const view = this._scroll;
    const [x, y, width] = [box.x * this._zoom, box.y * this._zoom, box.width * this._zoom];
    if (x < view.scrollLeft || x + width > view.scrollLeft + view.clientWidth) {
      view.scrollLeft = x + width / 2 - view.clientWidth / 2;
    }
    if (y - 30 < view.scrollTop || y + 30 > view.scrollTop + view.clientHeight) {
      view.scrollTop = y - view.clientHeight / 2;
    }
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    const here = this._boxes[this._active];
    if (!here || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Enter" || event.key === " ") {
      this._options.onOpen(here.box);
      event.preventDefault();
      return;
    }
    const to = this._neighbour(event.key, here.box);
    if (to === null) return;
    this._activate(to, true);
    event.preventDefault();
  }

  /**
   * @param {string} key
   * @param {Api.GraphBox} here
   * @returns {number | null}
   */
  _neighbour(key, here) {
    const nearest = (/** @type {number[]} */ places) =>
      places.toSorted(
        (one, other) =>
          Math.abs((this._boxes[one]?.box.y ?? 0) - here.y) - Math.abs((this._boxes[other]?.box.y ?? 0) - here.y),
      )[0] ?? null;
    if (key === "ArrowLeft") {
      return nearest(this._edges.filter((edge) => edge.target === this._active).map((edge) => edge.source));
    }
    if (key === "ArrowRight") {
      return nearest(this._edges.filter((edge) => edge.source === this._active).map((edge) => edge.target));
    }
    if (key === "Home") return 0;
    if (key === "End") return this._boxes.length - 1;
    if (key !== "ArrowUp" && key !== "ArrowDown") return null;
    const sign = key === "ArrowDown" ? 1 : -1;
    const column = this._boxes
      .map(({ box }, place) => ({ box, place }))
      .filter(({ box }) => box.stage === here.stage && sign * (box.y - here.y) > 0);
    return nearest(column.map(({ place }) => place));
  }
}

/**
 * @param {string} text
 * @param {string} label
 * @param {() => void} act
 */
function button(text, label, act) {
  return el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
}

/**
 * Leaves and arrives level; straight through a column, bent between columns.
 * @param {readonly number[]} points  x and y of each.
 */
function curve(points) {
  let [x = 0, y = 0] = points;
  let path = `M${x} ${y}`;
  for (let at = 2; at + 1 < points.length; at += 2) {
    const [nextX = 0, nextY = 0] = points.slice(at, at + 2);
    const half = (x + nextX) / 2;
    path += (at / 2) % 2 === 0 ? `L${nextX} ${nextY}` : `C${half} ${y} ${half} ${nextY} ${nextX} ${nextY}`;
    x = nextX;
    y = nextY;
  }
  return path;
}
