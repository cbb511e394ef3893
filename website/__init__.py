"""What the site is made of beside docs/: pages made from the source at build time, and pictures that scripts draw."""
