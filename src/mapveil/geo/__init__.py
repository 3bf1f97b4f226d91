"""Where: regions, points, counts and the tilings that divide a region into cells."""
