// TurboSHAKE128 as a stream of bytes (RFC 9861, section 2): Keccak-p[1600, 12] on lanes of two words of 32 bits.

const RATE = 168; // bytes of a block
const CONSTANTS = [
  0x000000008000808bn, 0x800000000000008bn, 0x8000000000008089n, 0x8000000000008003n, 0x8000000000008002n, 0x8000000000000080n,
  0x000000000000800an, 0x800000008000000an, 0x8000000080008081n, 0x8000000000008080n, 0x0000000080000001n, 0x8000000080008008n,
];
const ROUNDS = Uint32Array.from(CONSTANTS.flatMap((each) => [Number(each & 0xffffffffn), Number(each >> 32n)]));
const TURNS = [0, 1, 62, 28, 27, 36, 44, 6, 55, 20, 3, 10, 43, 25, 39, 41, 45, 15, 21, 8, 18, 2, 61, 56, 14]; // of lane x + 5 y
const MOVES = TURNS.map((_, lane) => {
  const [x, y] = [lane % 5, Math.floor(lane / 5)];
  return y + 5 * ((2 * x + 3 * y) % 5);
});

/** The permutation, in place: a state of 25 lanes, the low word of each first. */
function permute(state) {
  const columns = new Int32Array(10);
  const moved = new Int32Array(50);
  for (let round = 0; round < 12; round += 1) {
    for (let at = 0; at < 10; at += 1) columns[at] = state[at] ^ state[at + 10] ^ state[at + 20] ^ state[at + 30] ^ state[at + 40];
    for (let x = 0; x < 5; x += 1) {
      const [before, after] = [2 * ((x + 4) % 5), 2 * ((x + 1) % 5)];
      const low = columns[before] ^ ((columns[after] << 1) | (columns[after + 1] >>> 31));
      const high = columns[before + 1] ^ ((columns[after + 1] << 1) | (columns[after] >>> 31));
      for (let lane = 2 * x; lane < 50; lane += 10) {
        state[lane] ^= low;
        state[lane + 1] ^= high;
      }
    }
    for (let lane = 0; lane < 25; lane += 1) {
      const turn = TURNS[lane] % 32;
      const swap = TURNS[lane] >= 32 ? 1 : 0;
      const [low, high] = [state[2 * lane + swap], state[2 * lane + 1 - swap]];
      const to = 2 * MOVES[lane];
      // A shift by 32 is one by 0 in JavaScript, so a turn by 0 is left out.
      moved[to] = turn ? (low << turn) | (high >>> (32 - turn)) : low;
      moved[to + 1] = turn ? (high << turn) | (low >>> (32 - turn)) : high;
    }
    for (let row = 0; row < 50; row += 10) {
      for (let x = 0; x < 10; x += 1) state[row + x] = moved[row + x] ^ (~moved[row + ((x + 2) % 10)] & moved[row + ((x + 4) % 10)]);
    }
    state[0] ^= ROUNDS[2 * round];
    state[1] ^= ROUNDS[2 * round + 1];
  }
}

/** The hash of a message under a separation byte from 1 to 127, from which `read` takes the next bytes. */
export class TurboShake128 {
  constructor(message, domain) {
    this.state = new Int32Array(50);
    const padded = new Uint8Array(RATE * (Math.floor(message.length / RATE) + 1));
    padded.set(message);
    padded[message.length] = domain;
    padded[padded.length - 1] ^= 0x80;
    const view = new DataView(padded.buffer);
    for (let start = 0; start < padded.length; start += RATE) {
      for (let at = 0; at < RATE; at += 4) this.state[at / 4] ^= view.getUint32(start + at, true);
      permute(this.state);
    }
    this.block = new Uint8Array(RATE);
    this.used = 0;
    this.#show();
  }

  #show() {
    const view = new DataView(this.block.buffer);
    for (let at = 0; at < RATE; at += 4) view.setInt32(at, this.state[at / 4], true);
  }

  read(count) {
    const made = new Uint8Array(count);
    let at = 0;
    while (at < count) {
      if (this.used === RATE) {
        permute(this.state);
        this.#show();
        this.used = 0;
      }
      const part = this.block.subarray(this.used, Math.min(RATE, this.used + count - at));
      made.set(part, at);
      at += part.length;
      this.used += part.length;
    }
    return made;
  }
}
