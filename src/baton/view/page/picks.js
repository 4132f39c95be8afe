// Up to two traces to compare, from any place; kept while one goes from page to page.

let picks = [];

export function picked(place, id) {
  return picks.some((one) => one.place === place && one.id === id);
}

export function pick(place, id) {
  picks = picked(place, id) ? picks.filter((one) => one.place !== place || one.id !== id) : [...picks, { place, id }].slice(-2);
}

export function pair() {
  return picks.length === 2 ? { place: picks[0].place, id: picks[0].id, place2: picks[1].place, id2: picks[1].id } : null;
}

export function forget() {
  picks = [];
}
