// The methods of each trust, the usual one first. A test holds them against the table of methods.
const SUMS = [
  ["multiscale", "noisy blocks, divided where people are, sharpened at all scales"],
  ["adaptive", "rounds that divide the map where people are"],
  ["uniform", "one round over a uniform grid, as fine as the people asked allow"],
  ["hierarchical", "one round over all levels of the quadtree"],
  ["adaptive-grid", "a coarse grid, each block divided by its count, asked again"],
  ["spatial-decomposition", "all levels of a quadtree, made consistent"],
  ["count-min", "one round of count-min sketches"],
  ["laplace", "one round over every cell of the map"],
  ["thresholded", "one round over every cell, only the largest kept"],
  ["emd", "a noisy pyramid, its largest nodes kept: close in earth mover's distance"],
];

export const METHODS = {
  operators: SUMS,
  distributed: [
    ...SUMS,
    ["local-laplace", "every device adds the whole noise itself, for comparison"],
  ],
  local: [
    ["olh-h", "a hashed node of one random level; all levels made consistent"],
    ["subset", "a random set of sites, likelier one that holds the place"],
    ["disk", "a pixel, likelier one in a disk around the place"],
    ["srr", "a site, the nearer the likelier, in steps"],
    ["olh", "sites hashed to few buckets, one of them reported"],
    ["unary", "one randomized bit for every site"],
    ["hr", "a symbol by a row of a Hadamard matrix"],
    ["grr", "the place, or with some probability any other"],
    ["planar-laplace", "a site, exponentially less likely with its distance"],
  ],
  "random-features": [["fourier-kde", "random Fourier features of the locations; their sum is the density"]],
};
