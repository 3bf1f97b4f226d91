// Where this phone is, from its own sensors. What is found goes to the caller and nowhere else.

import { Refusal } from "./refusal.mjs";

const PATIENCE_MS = 30000;
const FAULTS = {
  1: "This page may not see your position. Allow it in the browser's settings, or type a place.",
  2: "This phone does not know its position now. Try again under an open sky, or type a place.",
  3: "This phone took too long to find its position. Try again, or type a place.",
};

/** {lon, lat} of this phone; a Refusal that says why not. */
export function positionNow() {
  return new Promise((resolve, reject) => {
    if (!navigator.geolocation) {
      reject(new Refusal("This browser has no position. Type a place."));
      return;
    }
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => resolve({ lon: coords.longitude, lat: coords.latitude }),
      ({ code }) => reject(new Refusal(FAULTS[code] ?? FAULTS[2])),
      { enableHighAccuracy: true, timeout: PATIENCE_MS, maximumAge: 60000 },
    );
  });
}

/** {lon, lat} of two typed texts; a Refusal where they are no place. */
export function typedPlace(latitude, longitude) {
  const [lat, lon] = [latitude, longitude].map((words) => {
    const trimmed = words.trim().replace(",", ".");
    return /^[-+]?\d+(\.\d*)?$/.test(trimmed) ? Number(trimmed) : NaN;
  });
  if (!(Math.abs(lat) <= 90 && Math.abs(lon) <= 180)) {
    throw new Refusal("That is not a location: enter degrees such as 40.76 (latitude) and -73.97 (longitude).");
  }
  return { lon, lat };
}
