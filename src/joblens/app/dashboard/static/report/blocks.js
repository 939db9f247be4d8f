/** Data of a report: items by kind, in compressed blocks that are unpacked when they are needed. */

const MOST_BLOCKS = 24; // unpacked at a time; a report may have thousands

export class Blocks {
  /** @param {Record<string, [number, number][]>} index  Kind -> block and number of its first item. */
  constructor(index) {
    this._index = index;
    /** @type {Map<number, Promise<any[]>>} */
    this._unpacked = new Map();
  }

  /**
   * @param {string} kind
   * @param {number} number
   */
  async item(kind, number) {
    const blocks = this._index[kind] ?? [];
    let low = 0;
    let high = blocks.length - 1;
    while (low < high) {
      const middle = Math.ceil((low + high) / 2);
      if ((blocks[middle]?.[1] ?? 0) <= number) low = middle;
      else high = middle - 1;
    }
    const [block, first] = blocks[low] ?? [-1, 0];
    return (await this._unpack(block))[number - first];
  }

  /**
   * All items of a kind, in order.
   * @param {string} kind
   */
  async all(kind) {
    const parts = await Promise.all((this._index[kind] ?? []).map(([block]) => unpack(block)));
    return parts.flat();
  }

  /** @param {number} block */
  _unpack(block) {
    const known = this._unpacked.get(block);
    if (known) {
      this._unpacked.delete(block);
      this._unpacked.set(block, known);
      return known;
    }
    const found = unpack(block);
    this._unpacked.set(block, found);
    const [oldest] = this._unpacked.keys();
    if (this._unpacked.size > MOST_BLOCKS && oldest !== undefined) this._unpacked.delete(oldest);
    return found;
  }
}

/**
 * @param {number} block
 * @returns {Promise<any[]>}
 */
async function unpack(block) {
  const text = document.getElementById(`block-${block}`)?.textContent ?? "";
  if (!text) return [];
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index++) bytes[index] = binary.charCodeAt(index);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}
