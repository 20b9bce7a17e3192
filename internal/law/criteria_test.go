package law

// criteria are what makes the tools of operators good.
var criteria = []section{
	{"It never lies", []subject{
		{"OP1", "One sentence of why on every unfinished task, made by the core, the same everywhere", ""},
		{"OP2", "Success means passed; outcomes of a bulk operation add up to its frozen total at every moment", ""},
		{"OP3", "The members of an operation are frozen; what joins later is shown and never touched", ""},
		{"OP4", "Operations go in waves with a brake, can be paused and slowed, and survive kill -9", ""},
		{"OP5", "At a million tasks the first page of every list is quick, without count(*); counts say whether they are exact", ""},
	}},
	{"It does not hurt what it watches", []subject{
		{"OP6", "One shared reader a process, whatever the number of tabs", ""},
		{"OP7", "The first screen says what needs an operator, each one click from its list", ""},
		{"OP8", "Every filter and view is a URL", ""},
		{"OP9", "Select all that match, not all that are visible, with number and filter in words", ""},
		{"OP10", "Destructive actions say what, how many and why; the actor is stored", ""},
	}},
	{"One task", []subject{
		{"OP11", "Edit, then resubmit: old and new input side by side, the old one kept", ""},
		{"OP12", "The undo trail tells \"rolled back\" from \"rollback incomplete\" without colour", ""},
		{"OP13", "A timeline that is true to time", ""},
		{"OP14", "A graph that can be read at 5, 20 and 60 steps, and a table with the same content", ""},
		{"OP15", "WCAG 2.2 AA", ""},
	}},
	{"Who may, who did", []subject{
		{"OP16", "An audit trail of every mutation, refused ones too", ""},
		{"OP17", "Read-only is read-only on the server", ""},
		{"OP18", "JSON as it is: numbers exact, order kept, secrets masked", ""},
		{"OP19", "Pause and resume a plan, a step, an agent, a label, with what waits behind it and until when", ""},
		{"OP20", "Strict CSP, nothing from outside, from a sub-path, offline", ""},
	}},
	{"Everywhere the same", []subject{
		{"OP21", "Paging without holes", ""},
		{"OP22", "Errors are answers: a sentence and the next step", ""},
		{"OP23", "The same in the terminal, with the same words", ""},
		{"OP24", "Local and UTC, relative and exact times", ""},
		{"OP25", "Export of any list; one task as one file", ""},
	}},
}
