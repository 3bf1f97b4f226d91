/** What an app uses of the device's half of Mapveil. */

/** Uniform bytes: the system's generator by default. */
export class Randomness {
  constructor(fill?: (bytes: Uint8Array) => unknown);
  bytes(count: number): Uint8Array;
}

/** An exact fraction. */
export class Fraction {
  readonly top: bigint;
  readonly bottom: bigint;
  constructor(top: bigint, bottom?: bigint);
  /** Reads "3/2", "2" or "0.25"; throws unless it is above 0. */
  static read(written: string): Fraction;
  plus(other: Fraction): Fraction;
  minus(other: Fraction): Fraction;
  exceeds(other: Fraction): boolean;
  toNumber(): number;
  toString(): string;
}

/** Why this device does not answer, or does not trust an operator: a sentence for the person who holds it. */
export class Refusal extends Error {}

/** A request that was not answered as hoped: a sentence, and the HTTP status, 0 where there was no answer. */
export class Trouble extends Error {
  readonly status: number;
  /** Whether the collector will never accept the report. */
  readonly final?: boolean;
}

/** What the owner of a device allows; nobody else can change it. */
export interface Rules {
  /** The most that all reports cost together. */
  lifetime: Fraction;
  mostPerCollection: Fraction;
  /** The fewest devices that a collection may end with. */
  leastDevices: number;
  /** The most collections of random Fourier features, ever. */
  mostFeatureAnswers: number;
}

/** Lifetime 4, 2 for one collection, 20 devices, 8 collections of random features. */
export const RULES: Rules;

/** One of the two stores that a storage's work is given. */
export interface Store {
  get(key: string): Promise<unknown>;
  all(): Promise<unknown[]>;
  put(value: unknown, key?: string): void;
}

/** Where identity, account and answers are kept. */
export interface Storage {
  /** Whether it keeps CryptoKeys, which no script can read; otherwise the private key is kept as bytes. */
  readonly keepsKeys: boolean;
  /** Runs work in one transaction; resolves once all of it is kept for good. Work that throws changes nothing. */
  run<T>(work: (stores: { kept: Store; answers: Store }) => Promise<T>): Promise<T>;
}

/** Storage in a browser's IndexedDB. */
export class BrowserStorage implements Storage {
  readonly keepsKeys: true;
  static open(): Promise<BrowserStorage>;
  run<T>(work: (stores: { kept: Store; answers: Store }) => Promise<T>): Promise<T>;
}

/** Storage in one text that the app keeps; `save` resolves once the text is kept for good. */
export class RecordStorage implements Storage {
  readonly keepsKeys: false;
  constructor(text: { load(): Promise<string | null>; save(text: string): Promise<void> });
  run<T>(work: (stores: { kept: Store; answers: Store }) => Promise<T>): Promise<T>;
}

/** Storage in a file, in Node only. No two processes may use one file at a time. */
export class FileStorage extends RecordStorage {
  constructor(path: string);
}

/** An open collection, as the collector lists it. */
export interface Listed {
  id: string;
  trust: "local" | "operators" | "random-features" | "distributed";
  title: string;
  /** SHA-256 of the terms, hexadecimal. */
  terms: string;
  /** Whether this device has answered it. */
  answered: boolean;
}

/** The terms of a collection, read and checked. */
export interface Terms {
  identifier: string;
  title: string;
  trust: Listed["trust"];
  method: string;
  epsilon: Fraction | null;
  devices: number;
  minimum: number;
  /** SHA-256 of the terms, hexadecimal. */
  digest: string;
  /** The windows of a series, of which this device answers for one, or to two operators for all; null without. */
  windows: Windows | null;
}

/** The public windows of a series. */
export interface Windows {
  readonly count: number;
  readonly names: string[];
  readonly zone: string;
  /** Number of the window of a moment, milliseconds since 1970; -1 for none. */
  at(moment: number, category?: string | null): number;
  over(window: number, moment: number): boolean;
}

/** How a device answers a collection. */
export interface Plan {
  kind: "local" | "operators" | "random-features";
  /** The cells; for mapWords. */
  tiling: unknown;
  /** What is sent, in words. */
  words: string;
}

/** A place in degrees, WGS84. */
export interface Place {
  lon: number;
  lat: number;
}

/** A place of a record; in a series with what tells its window. */
export interface Visit extends Place {
  /** Milliseconds since 1970. */
  at?: number;
  category?: string | null;
}

/** A report that was made, charged and kept. */
export interface Answer {
  collection: string;
  title: string;
  trust: Listed["trust"];
  terms: string;
  /** The exact cost, such as "1/2"; null where it has none. */
  epsilon: string | null;
  /** Milliseconds since 1970. */
  at: number;
  /** The bytes that are sent. */
  body: Uint8Array;
  state: "made" | "sent" | "late" | "refused";
}

/** A device and its collector. */
export class Device {
  readonly memory: { answers(): Promise<Answer[]> };
  /** Opens the device that a storage keeps; draws an identity where it keeps none. */
  static open(options: { storage: Storage; address?: string; rules?: Rules }): Promise<Device>;
  /** The number that the collector gave; null before the device is enrolled. */
  number(): Promise<number | null>;
  enrol(token: string): Promise<number>;
  /** Names the second operator that the owner trusts, once: its public key, 64 hexadecimal digits. Returns the key that is kept.
   * Rejects with a Refusal where it is no such key, or where another one is kept. */
  trustHelper(key: string): Promise<string>;
  collections(): Promise<Listed[]>;
  /** Throws a Refusal where the terms are none, or others than announced. */
  terms(listed: Listed): Promise<Terms>;
  /** The one window of a series of local reports that this device answers for, drawn once and kept; null for any other.
   * Rejects with a Refusal where it was drawn for other terms of the same collection. */
  window(terms: Terms): Promise<number | null>;
  /** How this device answers; throws a Refusal where it does not. Looks at no place. */
  plan(terms: Terms): Promise<Plan>;
  /** Makes the report of what `find` finds, charges and keeps it: a place; to two operators also a list of places, each of which
   * counts alike, and in a series of theirs always a list. Null outside a map that asks for silence there. */
  answer(terms: Terms, plan: Plan, find: () => Place | Visit[] | Promise<Place | Visit[]>): Promise<Answer | null>;
  /** Sends a kept report, the same bytes each time. Throws Trouble where it is not accepted. */
  send(answer: Answer): Promise<void>;
}

/** What reports have cost together. */
export function spentBy(answers: Pick<Answer, "epsilon">[]): Fraction;

/** An operator's key, read from the bytes of its HPKE configuration. */
export interface OperatorKey {
  number: number;
  publicKey: Uint8Array;
}

export function readConfig(bytes: Uint8Array): OperatorKey;

/** Whole hours since 1970 of milliseconds since 1970. */
export function hourOf(milliseconds: number): number;

/** The bytes of a report to two operators. The contribution lists different sites of the raster, each with its units. */
export function operatorsReport(
  question: { depth: number; scale: number; task: Uint8Array; operators: [OperatorKey, OperatorKey] },
  contribution: [site: number, units: number][],
  hour: number,
  rng: Randomness,
): Promise<Uint8Array>;

/** Sentences for the owner of the device: the map; what leaves; what can be learnt; what it costs; the limit of all reports. */
export function mapWords(tiling: unknown): string;
export function windowWords(windows: Windows, window: number | null): string;
export function leavingWords(plan: Plan): string;
export function learningWords(terms: Terms, plan: Plan): string;
export function costWords(terms: Terms): string;
export function limitWords(rules: Rules): string;
