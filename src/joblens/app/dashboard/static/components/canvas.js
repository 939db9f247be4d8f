/** Drawing on canvas: sizes in CSS pixels, clipping, signs, and instants of a time axis. */

/** Steps of the time axis, in µs. */
const STEPS = [
  1e3,
  5e3,
  1e4,
  5e4,
  1e5,
  2e5,
  5e5,
  1e6,
  2e6,
  5e6,
  10e6,
  15e6,
  30e6,
  60e6,
  120e6,
  300e6,
  600e6,
  900e6,
  1800e6,
  3600e6,
  7200e6,
  14400e6,
  21600e6,
  43200e6,
  86400e6,
  2 * 86400e6,
];

/**
 * Instants at whole seconds, minutes or hours of the reader's time zone, with their words.
 * @param {number} from_us
 * @param {number} to_us
 * @param {number} most
 */
export function ticks(from_us, to_us, most) {
  const step = STEPS.find((each) => (to_us - from_us) / each <= Math.max(2, most)) ?? 7 * 86400e6;
  const offset = new Date(from_us / 1000).getTimezoneOffset() * 60e6;
  const found = [];
  for (let at = Math.ceil((from_us - offset) / step) * step + offset; at <= to_us; at += step) {
    found.push({ at, words: clock(at, step) });
  }
  return found;
}

/** How much larger than usual the reader's text is: larger on very large screens. */
export function textScale() {
  return (Number.parseFloat(getComputedStyle(document.documentElement).fontSize) || 14) / 14;
}

/**
 * A canvas of this size, cleared, in CSS pixels.
 * @param {HTMLCanvasElement} canvas
 * @param {number} width
 * @param {number} height
 */
export function prepared(canvas, width, height) {
  const ratio = Math.min(2, devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context?.setTransform(ratio, 0, 0, ratio, 0, 0);
  context?.clearRect(0, 0, width, height);
  return context;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {() => void} draw
 */
export function clipped(context, x, y, width, height, draw) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  draw();
  context.restore();
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x
 * @param {number} y
 */
export function cross(context, x, y) {
  context.strokeStyle = context.fillStyle;
  context.lineWidth = 1.6;
  context.beginPath();
  context.moveTo(x - 3, y - 3);
  context.lineTo(x + 3, y + 3);
  context.moveTo(x + 3, y - 3);
  context.lineTo(x - 3, y + 3);
  context.stroke();
}

/** @param {number} scale */
export function font(scale) {
  return `${12 * scale}px system-ui, sans-serif`;
}

/**
 * @param {number} us
 * @param {number} step  Of the axis.
 */
function clock(us, step) {
  const at = new Date(us / 1000);
  if (step >= 86400e6) return `${at.getMonth() + 1}/${at.getDate()}`;
  const time = at.toTimeString();
  if (step >= 60e6) return time.slice(0, 5);
  if (step >= 1e6) return time.slice(0, 8);
  return `${time.slice(0, 8)}.${String(at.getMilliseconds())
    .padStart(3, "0")
    .slice(0, step >= 1e5 ? 1 : 3)}`;
}
