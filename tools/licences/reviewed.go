package main

// review is a licence file that the scanner cannot judge and that was read instead. It
// counts for this text alone: another sum means that it must be read again.
type review struct {
	module, file string
	sha256       string
	licences     []string // what of it concerns linked code
	reason       string   // what the scanner did not know, or took for more than it is
}

var reviewed = []review{
	{
		module: "modernc.org/libc", file: "LICENSE-3RD-PARTY.md",
		sha256:   "f597097efe3d97021f89170746bd3a0fb9a8b6fb26b82043ed68a4e0283bee6c",
		licences: []string{"BSD-2-Clause", "BSD-3-Clause", "MIT"},
		reason:   "musl's authors and the origins of its parts, all MIT or BSD, stand between the texts",
	},
	{
		module: "modernc.org/memory", file: "LICENSE-LOGO",
		sha256: "5ae5bee3072a841376451b48d8cfcec7188e10543926d5870828d36c8a750dc5",
		reason: "the address of a picture, which is not linked",
	},
	{
		module: "modernc.org/sqlite", file: "LICENSE-SQLITE",
		sha256:   "8438c9c89b849131ead81d5435cb97fcf052df5b0b286dda8a2d4c29e6cb3fd0",
		licences: []string{"public domain"},
		reason:   "SQLite's dedication to the public domain, in prose",
	},
	{
		module: "modernc.org/sqlite", file: "LICENSE-3RD-PARTY.md",
		sha256:   "4194f8e7119be72babd499db4f6f1f7547e36e8a7bffcb2b9c8df241b8f1576a",
		licences: []string{"BSD-3-Clause", "MIT", "public domain"},
		reason:   "a list of the whole module graph; MPL-2.0 there is of golang-lru, which nothing here links",
	},
}
