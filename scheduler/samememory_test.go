package scheduler_test

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"duly.dev/duly/scheduler"
)

// memory is all that a shard keeps, found by reflection over all fields, so that a new one is in it by itself: each value that
// is not zero, by its path. What several paths lead to has a name and is there once.
type memory struct {
	values map[string]string
	names  map[pointer]string
	taken  map[string]int // how many have a name
	queue  []named
}

type pointer struct {
	to reflect.Type
	at uintptr
}

type named struct {
	name string
	v    reflect.Value
}

// surroundings are types of what a shard is given, and what never changes; they are not its memory.
var surroundings = map[string]bool{
	"scheduler.Config": true, "slog.Logger": true, "core.Plan": true, "core.Step": true, "sync.Mutex": true,
	"scheduler.Store": true, "scheduler.Bus": true, "scheduler.sortedStore": true,
}

// scratch is memory of the last question, kept so that the next one costs none.
var scratch = map[string]bool{
	"shard.cycle.mail": true, "shard.cycle.out": true, "shard.owned.ordered": true, "shard.queues.slots": true,
	"shard.gate.asked": true, "shard.gate.agents.back": true, "shard.counting.Asker": true,
}

// rooms are fields of a shard that others of it point to.
var rooms = []string{"owned", "plans", "gate", "cycle"}

func memoryOf(s *scheduler.Shard) *memory {
	m := &memory{values: map[string]string{}, names: map[pointer]string{}, taken: map[string]int{}}
	shard := reflect.ValueOf(s).Elem()
	m.place("shard", shard)
	for _, room := range rooms {
		v := shard.FieldByName(room)
		m.give(v, "shard."+room)
		m.place("shard."+room, v.Elem())
	}
	partitions := shard.FieldByName("owned").Elem().FieldByName("partitions")
	for _, key := range m.sorted(partitions) {
		p := partitions.MapIndex(key).Elem()
		tasks, slots := p.FieldByName("tasks"), p.FieldByName("slots")
		for _, number := range m.sorted(tasks) {
			m.give(tasks.MapIndex(number), fmt.Sprintf("task(%v/%v)", key, number))
		}
		for _, agent := range m.sorted(slots) {
			m.give(slots.MapIndex(agent), fmt.Sprintf("slot(%v %v)", key, agent))
		}
	}
	refs := shard.FieldByName("plans").Elem().FieldByName("refs")
	for _, key := range m.sorted(refs) {
		m.give(refs.MapIndex(key), "plan("+m.key(key)+")")
	}
	m.walk("shard", shard)
	for len(m.queue) > 0 {
		next := m.queue[0]
		m.queue = m.queue[1:]
		m.walk(next.name, next.v)
	}
	return m
}

// place names a part of the shard, and its own parts, for pointers that lead to them.
func (m *memory) place(path string, v reflect.Value) {
	if v.Kind() != reflect.Struct {
		return
	}
	m.names[pointer{reflect.PointerTo(v.Type()), v.UnsafeAddr()}] = path
	for i := range v.NumField() {
		m.place(path+"."+v.Type().Field(i).Name, v.Field(i))
	}
}

// name is that of what a pointer leads to.
func (m *memory) name(path string, p reflect.Value) string {
	if name, ok := m.names[pointer{p.Type(), p.Pointer()}]; ok {
		return name
	}
	of := p.Elem()
	switch p.Type().String() {
	case "*scheduler.entry": // one that a partition does not hold
		m.names[pointer{p.Type(), p.Pointer()}] = "let go"
		return "let go"
	case "*scheduler.fan":
		verb := "do"
		if of.FieldByName("undo").Bool() {
			verb = "undo"
		}
		if !stands(of) {
			verb = "past"
		}
		path = fmt.Sprintf("fan(%s %s step %v)", verb, m.name("", of.FieldByName("e")), of.FieldByName("step"))
	case "*scheduler.agentCalls":
		path = fmt.Sprintf("agent(%v)", of.FieldByName("name"))
	case "*scheduler.keyCalls":
		path = fmt.Sprintf("key(%v/%v)", of.FieldByName("agent").Elem().FieldByName("name"), of.FieldByName("key"))
	case "*scheduler.planRef":
		path = "plan(forgotten)"
	case "*scheduler.agentSlot":
		path = "slot(forgotten)"
	}
	return m.give(p, path)
}

// stands is fan.stands: a step that is over keeps its fan until the task's next.
func stands(fan reflect.Value) bool {
	steps, step := fan.FieldByName("e").Elem().FieldByName("task").Elem().FieldByName("Steps"), int(fan.FieldByName("step").Int())
	return step < steps.Len() && steps.Index(step).FieldByName("Out").Int() == fan.FieldByName("seq").Int()
}

func (m *memory) give(p reflect.Value, name string) string {
	if m.taken[name]++; m.taken[name] > 1 {
		name = fmt.Sprintf("%s again %d", name, m.taken[name])
	}
	m.names[pointer{p.Type(), p.Pointer()}] = name
	m.queue = append(m.queue, named{name, p.Elem()})
	return name
}

// sorted are the keys of a map.
func (m *memory) sorted(v reflect.Value) []reflect.Value {
	return slices.SortedFunc(slices.Values(v.MapKeys()), func(a, b reflect.Value) int { return strings.Compare(m.key(a), m.key(b)) })
}

// key is a map's key as a text.
func (m *memory) key(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			parts = append(parts, m.key(v.Field(i)))
		}
		return strings.Join(parts, " ")
	case reflect.Pointer:
		if v.IsNil() {
			return "nil"
		}
		if v.Type().String() == "*core.Plan" {
			return fmt.Sprintf("%v/%v", v.Elem().FieldByName("Name"), v.Elem().FieldByName("Version"))
		}
		return m.name("key", v)
	default:
		return fmt.Sprint(v)
	}
}

func (m *memory) walk(path string, v reflect.Value) {
	if surroundings[v.Type().String()] || scratch[path] {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || surroundings[v.Type().Elem().String()] {
			return
		}
		m.values[path] = "→" + m.name(path, v)
	case reflect.Interface:
		if !v.IsNil() {
			m.walk(path, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "_" {
				m.walk(path+"."+name, v.Field(i))
			}
		}
	case reflect.Map:
		for _, k := range m.sorted(v) {
			at := path + "[" + m.key(k) + "]"
			m.values[at] = "there"
			m.walk(at, v.MapIndex(k))
		}
	case reflect.Slice:
		if v.Len() == 0 {
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			m.values[path] = fmt.Sprintf("%q", v.Bytes())
			return
		}
		m.values[path+".len"] = fmt.Sprint(v.Len())
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			m.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Chan, reflect.UnsafePointer, reflect.Func:
	default:
		if !v.IsZero() {
			m.values[path] = fmt.Sprint(v)
		}
	}
}

// lacksFan reports whether a path leads into a fan that a shard does not have: one that takes over makes it when it needs it.
func (m *memory) lacksFan(path string) bool {
	fan, _, is := strings.Cut(path, ").")
	return is && strings.HasPrefix(fan, "fan(do") && m.values[fan+").p"] == ""
}

// may is what may differ between two shards: paths, as regular expressions, with the reasons.
type may map[string]string

// differences are the paths at which two memories differ, but for those that may.
func differences(got, want *memory, allowed ...may) (all []string) {
	var rules []*regexp.Regexp
	for _, list := range allowed {
		for path := range list {
			rules = append(rules, regexp.MustCompile("^(?:"+path+")$"))
		}
	}
	paths := map[string]bool{}
	for path := range got.values {
		paths[path] = true
	}
	for path := range want.values {
		paths[path] = true
	}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if got.values[path] == want.values[path] || want.lacksFan(path) || slices.ContainsFunc(rules, func(r *regexp.Regexp) bool { return r.MatchString(path) }) {
			continue
		}
		all = append(all, fmt.Sprintf("%s: %q, want %q", path, got.values[path], want.values[path]))
	}
	return all
}
