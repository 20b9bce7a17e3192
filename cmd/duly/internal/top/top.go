// Package top is a live view of the engine in a terminal: what needs an operator, how the engine does, what fails. Its
// words and numbers are the API's.
package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"charm.land/bubbles/v2/help"
	"charm.land/bubbles/v2/key"
	"charm.land/bubbles/v2/viewport"
	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"duly.dev/duly/cmd/duly/internal/client"
	"duly.dev/duly/cmd/duly/internal/show"
	"duly.dev/duly/internal/operate"
	"duly.dev/duly/internal/say"
)

// Options of Run.
type Options struct {
	Client *client.Client
	Every  time.Duration // between two looks
	In     io.Reader
	Out    io.Writer
	Plain  bool // no colours
}

// Run shows the view until its user leaves it or ctx ends.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	defer looks.Wait()
	defer cancel()
	m := newModel(o.Client.Base, o.Every, o.Plain)
	m.look = func() tea.Msg {
		looks.Add(1)
		defer looks.Done()
		return look(ctx, o.Client)
	}
	_, err := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out)).Run()
	if errors.Is(err, tea.ErrProgramKilled) || errors.Is(err, tea.ErrInterrupted) {
		return nil // by whom it was started, or with ctrl+c
	}
	return err
}

// rows are how many of each list are asked for.
const rows = 100

// samplesMax is how many samples the plots go back.
const samplesMax = 240

// The panes, in the order of their keys.
const (
	paneOverview = iota
	paneFailures
	paneOperations
	paneAgents
	panes
)

var paneNames = [panes]string{"overview", "failures", "operations", "agents"}

// Columns of the lists: paths of the API's JSON names.
var (
	FailureColumns   = []string{"id", "tasks", "state", "type", "step", "~last", "example"}
	OperationColumns = []string{"id", "state", "tasks", "tally.done", "tally.failed_again", "tally.waiting", "~why"}
	AgentColumns     = []string{"name", "instances", "gone", "breaker", "waiting", "paused", "latency_ms", "errors"}
)

// seen is what one look found.
type seen struct {
	at       time.Time
	overview Overview
	samples  []operate.Sample // oldest first
	lists    [panes][]show.Object
	failed   [panes]error // why a list is not there
	err      error        // of the whole look
}

// Overview is the first screen, as the API answers.
type Overview struct {
	operate.Overview
	AgeMS   int64  `json:"age_ms"`  // by the clock of the node
	Trouble string `json:"trouble"` // why the node's own look failed; what it shows is as old as it says then
}

// oldAfter is the age from which on it is said.
const oldAfter = 2 * time.Second

// looked is when the node looked, and how long ago that was.
func (o *Overview) looked() string {
	text := "looked at " + clock(o.At)
	if age := time.Duration(o.AgeMS) * time.Millisecond; age >= oldAfter {
		text += fmt.Sprintf(", %d s ago", int(age.Seconds()))
	}
	return text
}

// look asks for everything that is shown.
func look(ctx context.Context, c *client.Client) seen {
	s := seen{at: time.Now()}
	read := func(path string, query url.Values, into any) error {
		data, err := c.Do(ctx, client.Request{Method: http.MethodGet, Path: path, Query: query})
		if err == nil {
			err = show.Decode(data, into)
		}
		return err
	}
	var stats struct {
		Samples []operate.Sample `json:"samples"`
	}
	if s.err = read("/v1/overview", nil, &s.overview); s.err == nil {
		s.err = read("/v1/stats", nil, &stats)
	}
	if s.err != nil {
		return s
	}
	s.samples = stats.Samples
	limit := url.Values{"limit": {strconv.Itoa(rows)}}
	for _, list := range []struct {
		pane      int
		path, key string
		query     url.Values
	}{{paneFailures, "/v1/failures", "groups", limit}, {paneOperations, "/v1/operations", "operations", limit}, {paneAgents, "/v1/agents", "agents", nil}} {
		var body show.Object
		if s.failed[list.pane] = read(list.path, list.query, &body); s.failed[list.pane] == nil {
			s.lists[list.pane] = show.Objects(body[list.key])
		}
	}
	return s
}

// point is what the plots show of the time between two looks.
type point struct {
	created, ended, backlog, p50, p99 float64

	more bool // the backlog was cut
	gap  bool // nothing was looked at for a while before it, so that it has no rates
}

// keys are what can be pressed.
type keys struct {
	next, previous, one, two, three, four, up, down, refresh, hold, help, quit key.Binding
}

func binding(help, what string, on ...string) key.Binding {
	return key.NewBinding(key.WithKeys(on...), key.WithHelp(help, what))
}

var pressed = keys{
	next: binding("tab", "next pane", "tab", "right", "l"), previous: binding("shift+tab", "pane before", "shift+tab", "left", "h"),
	one: binding("1", paneNames[0], "1"), two: binding("2", paneNames[1], "2"), three: binding("3", paneNames[2], "3"), four: binding("4", paneNames[3], "4"),
	up: binding("↑", "up", "up", "k", "pgup"), down: binding("↓", "down", "down", "j", "pgdown"),
	refresh: binding("r", "look now", "r"), hold: binding("p", "hold", "p", "space"), help: binding("?", "help", "?"), quit: binding("q", "quit", "q", "esc", "ctrl+c"),
}

// ShortHelp implements help.KeyMap.
func (k keys) ShortHelp() []key.Binding {
	return []key.Binding{k.next, k.down, k.refresh, k.hold, k.help, k.quit}
}

// FullHelp implements help.KeyMap.
func (k keys) FullHelp() [][]key.Binding {
	return [][]key.Binding{{k.one, k.two, k.three, k.four}, {k.next, k.previous, k.up, k.down}, {k.refresh, k.hold, k.help, k.quit}}
}

// model is the state of the view.
type model struct {
	look    func() tea.Msg
	address string
	every   time.Duration
	plain   bool

	width, height int
	pane          int
	body          viewport.Model
	help          help.Model
	held          bool // looks at nothing
	looking       bool // a look is under way
	looks         int  // that have ended

	last   seen    // the last look that succeeded
	err    error   // of the looks since; nil: the last one succeeded
	points []point // oldest first

}

func newModel(address string, every time.Duration, plain bool) *model {
	m := &model{address: address, every: every, plain: plain, width: 80, height: 24, body: viewport.New(), help: help.New()}
	if plain {
		m.help.Styles = help.Styles{}
	}
	return m
}

// tick says that it is time to look. One that is not of the newest look is out of date: a look was asked for meanwhile.
type tick struct{ of int }

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.begin() }

// begin begins a look, unless one is under way.
func (m *model) begin() tea.Cmd {
	if m.looking {
		return nil
	}
	m.looking = true
	return m.look
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case seen:
		m.looking = false
		m.take(msg)
		m.looks++
		next := tick{m.looks}
		return m, tea.Tick(m.every, func(time.Time) tea.Msg { return next })
	case tick:
		if m.held || msg.of != m.looks {
			return m, nil
		}
		return m, m.begin()
	case tea.KeyPressMsg:
		return m, m.press(msg)
	}
	return m, nil
}

// press carries out a key.
func (m *model) press(msg tea.KeyPressMsg) tea.Cmd {
	show := func(pane int) {
		m.pane = pane
		m.body.GotoTop()
	}
	switch k := pressed; {
	case key.Matches(msg, k.quit):
		return tea.Quit
	case key.Matches(msg, k.help):
		m.help.ShowAll = !m.help.ShowAll
	case key.Matches(msg, k.next):
		show((m.pane + 1) % panes)
	case key.Matches(msg, k.previous):
		show((m.pane + panes - 1) % panes)
	case key.Matches(msg, k.one):
		show(paneOverview)
	case key.Matches(msg, k.two):
		show(paneFailures)
	case key.Matches(msg, k.three):
		show(paneOperations)
	case key.Matches(msg, k.four):
		show(paneAgents)
	case key.Matches(msg, k.up):
		m.body.ScrollUp(m.step(msg))
	case key.Matches(msg, k.down):
		m.body.ScrollDown(m.step(msg))
	case key.Matches(msg, k.refresh):
		return m.begin()
	case key.Matches(msg, k.hold):
		m.held = !m.held
		if !m.held {
			return m.begin()
		}
	}
	return nil
}

// step is how many lines a key moves.
func (m *model) step(msg tea.KeyPressMsg) int {
	if s := msg.String(); s == "pgup" || s == "pgdown" {
		return max(1, m.body.Height()-1)
	}
	return 1
}

// take takes a look in. One that failed leaves what was seen before, with its age.
func (m *model) take(s seen) {
	m.err = s.err
	if s.err != nil {
		return
	}
	m.last = s
	m.points = pointsOf(s.samples)
}

// pointsOf are the differences of samples.
func pointsOf(samples []operate.Sample) []point {
	var all []point
	for i := range samples {
		now := &samples[i]
		p := point{backlog: float64(now.Backlog.N), p50: now.P50MS, p99: now.P99MS, more: now.Backlog.AtLeast, gap: now.Gap}
		if i > 0 && !now.Gap {
			before := &samples[i-1]
			between := now.At.Sub(before.At).Seconds()
			if between <= 0 {
				continue
			}
			// A database that went back has lower totals.
			p.created = max(0, float64(now.Created-before.Created)/between)
			p.ended = max(0, float64(now.Ended-before.Ended)/between)
		}
		all = append(all, p)
	}
	if len(all) > 1 {
		all = all[1:] // the first has no rate
	}
	return all[max(0, len(all)-samplesMax):]
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "duly top"
	return v
}

// The least size that the view can be read at.
const (
	widthLeast  = 40
	heightLeast = 10
)

// screen is every line of the view.
func (m *model) screen() string {
	if m.width < widthLeast || m.height < heightLeast {
		return ansi.Truncate(say.Of("top.small", "width", m.width, "height", m.height), max(1, m.width), "")
	}
	m.help.SetWidth(m.width)
	foot := m.help.View(pressed)
	head := []string{m.title(), m.tabs(), ""}
	m.body.SetWidth(m.width)
	m.body.SetHeight(m.height - len(head) - lipgloss.Height(foot))
	m.body.SetContent(m.content())
	lines := append(head, strings.Split(m.body.View(), "\n")...)
	lines = append(lines, strings.Split(foot, "\n")...)
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return strings.Join(lines[:min(len(lines), m.height)], "\n")
}

// style is text in bold or a colour, where there are any.
func (m *model) style(text string, s lipgloss.Style) string {
	if m.plain {
		return text
	}
	return s.Render(text)
}

var (
	bold   = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	alarm  = lipgloss.NewStyle().Foreground(lipgloss.Red)
	warn   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	well   = lipgloss.NewStyle().Foreground(lipgloss.Green)
	chosen = lipgloss.NewStyle().Reverse(true)
)

// title says what is shown and how old it is.
func (m *model) title() string {
	left := m.style("duly top", bold) + "  " + m.address
	right := "looking …"
	switch {
	case m.err != nil && m.last.at.IsZero():
		right = m.style(m.why(), alarm)
	case m.err != nil:
		right = m.style(m.why()+"; seen at "+clock(m.last.at), alarm)
	case m.held:
		right = m.style("held; seen at "+clock(m.last.at), warn)
	case !m.last.at.IsZero():
		right = "seen at " + clock(m.last.at)
	}
	gap := m.width - ansi.StringWidth(left) - ansi.StringWidth(right)
	if gap < 1 {
		left = ansi.Truncate(left, max(0, m.width-ansi.StringWidth(right)-1), "…")
		gap = max(1, m.width-ansi.StringWidth(left)-ansi.StringWidth(right))
	}
	return left + strings.Repeat(" ", gap) + right
}

// why is a word for what the last look failed with.
func (m *model) why() string {
	if _, answered := errors.AsType[*client.Problem](m.err); answered {
		return "refused"
	}
	return "not reached"
}

func clock(at time.Time) string { return at.UTC().Format("15:04:05Z") }

// tabs names the panes; the one that is shown is in brackets.
func (m *model) tabs() string {
	var parts []string
	for i, name := range paneNames {
		text := fmt.Sprintf(" %d %s ", i+1, name)
		if n := len(m.last.lists[i]); n > 0 {
			text = fmt.Sprintf(" %d %s %d ", i+1, name, n)
		}
		if i == m.pane {
			text = m.style("["+strings.TrimSpace(text)+"]", chosen)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// content is the pane that is shown.
func (m *model) content() string {
	var b bytes.Buffer
	page := show.Page{W: &b, Width: m.width, Colour: !m.plain, Now: m.last.at}
	if m.err != nil {
		fmt.Fprintln(&b, m.style(ansi.Wrap(show.Clean(m.err.Error()), m.width, ""), alarm))
		fmt.Fprintln(&b)
	}
	if m.last.at.IsZero() {
		return b.String()
	}
	if t := m.last.overview.Trouble; t != "" {
		fmt.Fprintln(&b, m.style(ansi.Wrap(show.Clean(say.Of("top.stale", "at", clock(m.last.overview.At), "error", t)), m.width, ""), alarm))
		fmt.Fprintln(&b)
	}
	if err := m.last.failed[m.pane]; err != nil {
		fmt.Fprintln(&b, m.style(ansi.Wrap(show.Clean(err.Error()), m.width, ""), alarm))
		return b.String()
	}
	switch list := m.last.lists[m.pane]; m.pane {
	case paneOverview:
		m.overview(&b)
	case paneFailures:
		m.list(page, FailureColumns, list, say.Of("cli.no-failure"), "duly failures show ID · duly failures repair ID --reason 'why'")
	case paneOperations:
		m.list(page, OperationColumns, list, "no operation", "duly op show ID · duly op stop ID --reason 'why'")
	case paneAgents:
		m.list(page, AgentColumns, list, "no agent", "duly pause set --agent NAME --reason 'why'")
	}
	text := b.String()
	if m.err != nil { // what is old is grey, and its age is in the title
		text = m.style(ansi.Strip(text), faint)
	}
	return text
}

// list is a table, or what it means that there is nothing in it, and what can be done.
func (m *model) list(page show.Page, columns []string, list []show.Object, none, next string) {
	if len(list) == 0 {
		fmt.Fprintln(page.W, m.style(none, well))
		return
	}
	page.Table(columns, list)
	if len(list) == rows {
		fmt.Fprintf(page.W, "the first %d\n", rows)
	}
	fmt.Fprintln(page.W)
	fmt.Fprintln(page.W, m.style(next, faint))
}

// overview is what needs an operator, and how the engine does.
func (m *model) overview(b *bytes.Buffer) {
	o := &m.last.overview
	fmt.Fprintln(b, m.style("needs you", bold)+m.style("  "+o.looked(), faint))
	// Each need has a line at least, so that what the engine does stays in sight.
	needs := m.needs(o, max(1, (m.height-panelLines)/max(1, len(o.Needs))-1))
	if len(needs) == 0 {
		needs = []string{m.style("nothing", well)}
	}
	for _, line := range needs {
		fmt.Fprintln(b, "  "+line)
	}
	fmt.Fprintln(b)
	fmt.Fprintln(b, m.style("does", bold))
	for _, plot := range []struct {
		name  string
		value func(point) float64
		unit  string
	}{
		{"created", func(p point) float64 { return p.created }, "/s"},
		{"ended", func(p point) float64 { return p.ended }, "/s"},
		{"backlog", func(p point) float64 { return p.backlog }, " tasks"},
		{"p50_ms", func(p point) float64 { return p.p50 }, " ms"},
		{"p99_ms", func(p point) float64 { return p.p99 }, " ms"},
	} {
		fmt.Fprintln(b, m.plot(plot.name, plot.unit, plot.value))
	}
	fmt.Fprintln(b)
	fmt.Fprintln(b, m.style("tasks", bold))
	var counts []string
	for _, c := range o.Counts {
		counts = append(counts, fmt.Sprintf("%s %v", c.State, c.Tasks))
	}
	fmt.Fprintln(b, ansi.Wrap("  "+strings.Join(counts, "   "), m.width, ""))
}

// panelLines are those of the screen that stand around the needs.
const panelLines = 16

// statusWidth is as wide as a line of Status may be: nothing is cut off for a terminal.
const statusWidth = 1000

// Status writes what needs an operator, and how many tasks are in each state.
func Status(to io.Writer, o *Overview) {
	m := &model{plain: true, width: statusWidth}
	needs := m.needs(o, operate.NeedLinesMax)
	if len(needs) == 0 {
		needs = []string{say.Of("top.calm")}
	}
	for _, line := range needs {
		fmt.Fprintln(to, line)
	}
	for _, c := range o.Counts {
		fmt.Fprintf(to, "  %-10s %v\n", c.State, c.Tasks)
	}
	fmt.Fprintln(to, o.looked())
}

// commands have all that a need has the first of.
var commands = map[operate.NeedKind]string{
	operate.NeedTrouble: "duly doctor", operate.NeedAgents: "duly agents", operate.NeedBreakers: "duly agents", operate.NeedPauses: "duly pause list", operate.NeedLimits: "duly limits",
	operate.NeedErrors: "duly failures list --state error", operate.NeedDeadlines: "duly task list --deadline-to 5m", operate.NeedAnswers: "duly list --waits signal", operate.NeedOperations: "duly op list",
}

// needs are the lines of what needs an operator, in the order of the API: of each how many tasks it is about, those of it
// that concern the most, up to a number of lines, and the command that has the others.
func (m *model) needs(o *Overview, lines int) []string {
	var all []string
	add := func(s lipgloss.Style, text string) {
		all = append(all, m.style(ansi.Truncate(show.Clean(text), m.width-2, "…"), s))
	}
	for i := range o.Needs {
		n := o.Needs[i].Cut(lines)
		style, title := warn, "! "+n.Title
		if n.Cause() || n.Kind == operate.NeedErrors {
			style, title = alarm, "✗ "+n.Title
		}
		if o.At.Sub(n.At) >= oldAfter {
			title += ", looked at " + clock(n.At)
		}
		add(style, title+" ("+commands[n.Kind]+")")
		for _, l := range n.Lines {
			text := fmt.Sprintf("  %8v  %s", l.Tasks, l.Text)
			if n.Kind == operate.NeedTrouble || n.Single() {
				text = "    " + l.Text
			}
			if !l.Time.IsZero() {
				text += ", " + l.Note + " " + l.Time.UTC().Format("2006-01-02 15:04:05Z")
			}
			add(faint, text)
		}
		if rest := n.Rest(); rest != "" {
			add(faint, "    "+rest)
		}
	}
	return all
}

// bars are the heights of a plot.
var bars = []rune("▁▂▃▄▅▆▇█")

// plot is one line: name, present value, and the values before, the newest at the right; where nothing was looked at, none.
func (m *model) plot(name, unit string, value func(point) float64) string {
	if len(m.points) == 0 {
		return fmt.Sprintf("  %-8s -", name)
	}
	last := m.points[len(m.points)-1]
	now := number(value(last)) + unit
	if name == "backlog" && last.more {
		now = "≥ " + now
	}
	head := fmt.Sprintf("  %-8s %12s  ", name, now)
	points := m.points[len(m.points)-max(0, min(len(m.points), m.width-ansi.StringWidth(head))):]
	most := 0.0
	for _, p := range points {
		most = max(most, value(p))
	}
	var b strings.Builder
	for _, p := range points {
		i := 0
		if most > 0 {
			i = max(0, min(len(bars)-1, int(value(p)/most*float64(len(bars)))))
		}
		if p.gap {
			b.WriteRune(' ')
			continue
		}
		b.WriteRune(bars[i])
	}
	return head + b.String()
}

func number(v float64) string {
	if v < 10 && v != float64(int64(v)) {
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return say.Number(int64(v + 0.5))
}
