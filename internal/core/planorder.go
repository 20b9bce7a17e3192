package core

// Order says in words in which order the steps of a plan begin: each group of steps once, those that come after the same
// steps side by side.
func (p *Plan) Order() string {
	text := ""
	var last []int // the steps of the group before
	for i := 0; i < len(p.Steps) && len(text) <= orderBytesMax; {
		group := []int{i}
		for i++; i < len(p.Steps) && sameSteps(p.Steps[i].After, p.Steps[group[0]].After); i++ {
			group = append(group, i)
		}
		names, after := p.stepNames(group), p.Steps[group[0]].After
		if len(group) > 1 {
			names += " side by side"
		}
		switch {
		case text == "":
			text = names
		case sameSteps(after, last):
			text += ", then " + names
		case len(after) == 0:
			text += "; " + names + " at once"
		default:
			text += "; " + names + " after " + p.stepNames(after)
		}
		last = group
	}
	return ShortText(text, orderBytesMax)
}

// orderBytesMax bounds the words of an order.
const orderBytesMax = 2000

// sameSteps reports whether two lists have the same steps, each of them once.
func sameSteps(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	has := map[int]bool{}
	for _, i := range a {
		has[i] = true
	}
	for _, i := range b {
		if !has[i] {
			return false
		}
	}
	return true
}

// stepNames are the names of steps, as a person lists them.
func (p *Plan) stepNames(steps []int) string {
	text := ""
	for n, i := range steps {
		switch {
		case n == 0:
		case n == len(steps)-1:
			text += " and "
		default:
			text += ", "
		}
		text += p.Steps[i].Name
	}
	return text
}
