// One answer of this phone: made or sent, with its bytes to unfold.

import { hex } from "./bytes.mjs";
import { Trouble } from "./connection.mjs";
import { element, facts, say } from "./elements.mjs";
import { decimal } from "./policy.mjs";
import { Fraction } from "./fraction.mjs";
import { reportParts } from "./words.mjs";

const STATES = {
  made: ["Not sent", ""],
  sent: ["Sent", "good"],
  late: ["Not accepted: the collection was over", "bad"],
  refused: ["Not accepted by the collector", "bad"],
};
/** The card of a kept answer. */
export function answerCard(answer, device) {
  const [words, colour] = STATES[answer.state] ?? STATES.made;
  const cost = answer.epsilon === null ? "no budget" : `${decimal(Fraction.read(answer.epsilon))} of your budget`;
  const when = new Date(answer.at).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
  const card = element(
    "article",
    { className: "card answer", "data-collection": answer.collection },
    element("h3", { tabIndex: -1 }, answer.title || "A collection without a title"),
    element(
      "p",
      {},
      element("span", { className: `state ${colour}` }, words),
      element("span", { className: "quiet" }, ` · made ${when}, ${cost}`),
    ),
  );
  if (answer.state === "made") {
    const trouble = element("p", { className: "state bad", role: "alert", hidden: true });
    const button = element("button", { type: "button", className: "primary send" }, "Send it");
    button.addEventListener("click", async () => {
      button.disabled = true;
      trouble.hidden = true;
      try {
        await send(answer, device);
      } catch (error) {
        if (!(error instanceof Trouble)) throw error;
        trouble.textContent = error.message;
        trouble.hidden = false;
      } finally {
        button.disabled = false;
      }
    });
    card.append(button, trouble);
  }
  card.append(bytesOf(answer));
  return card;
}

function bytesOf({ body, trust, terms }) {
  return element(
    "details",
    {},
    element("summary", {}, `Everything that is in the report (${body.length} bytes)`),
    element("p", { className: "small quiet" }, "These bytes are the report, all of it. They are kept here as they are sent."),
    element("pre", { className: "bytes", tabIndex: 0, "aria-label": "The bytes of the report, hexadecimal" }, hex(body)),
    facts([...reportParts(body, trust), ["Under the terms", terms]]),
  );
}

/** Send an answer; the same bytes each time. */
async function send(answer, device) {
  say("Sending your report…");
  try {
    await device.send(answer);
  } catch (error) {
    say("");
    if (error instanceof Trouble && error.final) {
      await device.onAnswer(answer.collection, error.message);
      return;
    }
    throw error;
  }
  say("Your report was sent. Thank you.");
  await device.onAnswer(answer.collection);
}
