// The unit of the numbers on the page: samples, or what the hits of a point weigh. In: the facts of the page. Out:
// texts of numbers. Nanoseconds are shown as milliseconds, with every digit that they have. Everything after this file
// that shows a number of samples or a weight uses these texts.

/// Units that are shown as a larger one: its name, by how much it is larger, and its digits.
const LARGER = { ns: ["ms", 1e6, 6] };
const unit = { name: "samples", divisor: 1, format: whole, isWeight: false };

function setUnit(data) {
  if (!data.event) return;
  const [name, divisor, digits] = LARGER[data.event.unit] ?? [data.event.unit, 1, 0];
  const format = new Intl.NumberFormat("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  Object.assign(unit, { name, divisor, format, isWeight: true });
}

/// A number without its unit, and with it.
const amount = (number) => unit.format.format(number / unit.divisor);
const amountOf = (number) => `${amount(number)} ${unit.name}`;
const signed = (number) => `${number > 0 ? "+" : ""}${amount(number)}`;
/// In a sentence, samples need no unit, because nothing else is counted; weights do.
const amountInText = (number) => (unit.isWeight ? amountOf(number) : amount(number));
