// What an app uses of the device's modules.

export { BrowserStorage } from "./lib/browser_storage.mjs";
export { Trouble } from "./lib/connection.mjs";
export { Device } from "./lib/device.mjs";
export { Fraction } from "./lib/fraction.mjs";
export { hourOf, operatorsReport, readConfig } from "./lib/operators_report.mjs";
export { RULES, spentBy } from "./lib/policy.mjs";
export { Randomness } from "./lib/randomness.mjs";
export { Refusal } from "./lib/refusal.mjs";
export { costWords, learningWords, leavingWords, limitWords, mapWords, windowWords } from "./lib/words.mjs";
export { RecordStorage } from "./record_storage.mjs";
