package core

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// Every limit of a label from both sides; an error names the field, and the value or how long it is, and the limit.
//
// covers: OP19
func TestLabelLimits(t *testing.T) {
	long := strings.Repeat("x", LabelBytesMax)
	for text, says := range map[string]string{
		"tenant=acme": "", "a=b=c": "", long + "=" + long: "", "k=a b; \"c\" {~}": "", "_-9=0": "",
		"duly-priority=high": "", "duly-priority=normal": "", "duly-priority=low": "",
		"duly-priority=High":               "want high, normal or low",
		"":                                 "no =",
		"tenant":                           "no =",
		"=x":                               "key",
		"a.b=x":                            "key",
		"é=x":                              "key",
		long + "x=v":                       "64",
		"k=":                               "1 to 64",
		"k=" + long + "x":                  "1 to 64",
		"k=a,b":                            "comma",
		"k=é":                              "printable ASCII",
		"k=\x00":                           "printable ASCII",
		"k=\x7f":                           "printable ASCII",
		"k=a\nb":                           "printable ASCII",
		"k= a":                             "space",
		"k=a ":                             "space",
		strings.Repeat("y", 10<<20) + "=v": "10485760",
	} {
		l, err := ParseLabel(text)
		switch {
		case says == "" && (err != nil || l.String() != text):
			t.Errorf("%.80q: %+v, %v", text, l, err)
		case says != "" && (!errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), says) || len(err.Error()) > 500):
			t.Errorf("%.80q: %v, want a text with %q", text, err, says)
		}
	}
}

// The tenant in a header is that of the labels that it says.
func TestTenantIn(t *testing.T) {
	long := strings.Repeat("x", LabelBytesMax)
	for _, text := range []string{"", "tenant=acme", " a=b , tenant=a=c me ,c=d", "tenants=x", "tenant=" + long, "a=tenant=b", "b=1,tenant=x,c=2", "tenant=x,b=1"} {
		labels, err := ParseLabels(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"tenant", "a", ""} {
			if got, want := TenantIn(text, key), TenantOf(labels, key); got != want {
				t.Errorf("%q, key %q: %q, want %q", text, key, got, want)
			}
		}
	}
	for _, text := range []string{"tenant", "tenant=", "=,tenant,", "tenant=x" + long, strings.Repeat("a=b,", labelsTextMax) + "tenant=x"} {
		if got := TenantIn(text, "tenant"); got != "" {
			t.Errorf("%.80q: %q", text, got)
		}
	}
}

// What FormatLabels writes is what ParseLabels reads; more than the limit, a key twice and empty places are refused.
func TestLabelsText(t *testing.T) {
	most := make([]Label, LabelsMax)
	for i := range most {
		most[i] = Label{Key: fmt.Sprintf("%0*d", LabelBytesMax, i), Value: strings.Repeat("v", LabelBytesMax)}
	}
	for _, labels := range [][]Label{nil, {{"a", "b"}}, {{"b", "1=2"}, {"a", "x y"}}, most} {
		if got, err := ParseLabels(FormatLabels(labels)); err != nil || !reflect.DeepEqual(got, labels) {
			t.Errorf("%+v: %+v, %v", labels, got, err)
		}
	}
	if got, err := ParseLabels(" a=b ,  c=d "); err != nil || !reflect.DeepEqual(got, []Label{{"a", "b"}, {"c", "d"}}) {
		t.Errorf("with spaces: %+v, %v", got, err)
	}
	if got, err := ParseLabels(" " + strings.ReplaceAll(FormatLabels(most), ",", " , ") + " "); err != nil || len(got) != LabelsMax {
		t.Errorf("all limits with spaces: %d, %v", len(got), err)
	}
	for text, says := range map[string]string{
		"a=b,": "no =", ",": "no =", "a=b,,c=d": "no =", "a=b,a=c": "twice", FormatLabels(most) + ",z=1": "8",
		strings.Repeat(" ", labelsTextMax+1): fmt.Sprint(labelsTextMax),
	} {
		if got, err := ParseLabels(text); !errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), says) {
			t.Errorf("%.80q: %+v, %v, want a text with %q", text, got, err, says)
		}
	}
	if err := CheckLabels(append(most, Label{"z", "1"})); !errors.Is(err, ErrLabel) || !strings.Contains(err.Error(), "9, the limit is 8") {
		t.Errorf("nine labels: %v", err)
	}
}

// Labels are no part of what tells submissions apart, and take room in a batch.
func TestLabelsOfABirth(t *testing.T) {
	bare := TaskWrite{Birth: true, Task: &Task{ID: "a"}}
	labelled := TaskWrite{Birth: true, Task: &Task{ID: "a", Labels: []Label{{"key", "value"}}}}
	if less, more := bare.Size(), labelled.Size(); more < less+len("keyvalue") {
		t.Errorf("size %d without a label, %d with one", less, more)
	}
	labelled.Birth, labelled.Row = false, true
	bare.Birth, bare.Row = false, true
	if bare.Size() != labelled.Size() {
		t.Errorf("a row that changes: size %d without labels, %d with", bare.Size(), labelled.Size())
	}
}

// The class of a task is that of its label; without one, or with one of a newer version, it is normal.
func TestClassOf(t *testing.T) {
	for _, c := range []struct {
		labels []Label
		want   Class
	}{
		{nil, ClassNormal}, {[]Label{{"a", "high"}}, ClassNormal}, {[]Label{{"a", "b"}, {PriorityLabel, "high"}}, ClassHigh},
		{[]Label{{PriorityLabel, "normal"}}, ClassNormal}, {[]Label{{PriorityLabel, "low"}}, ClassLow}, {[]Label{{PriorityLabel, "idle"}}, ClassNormal},
	} {
		if got := ClassOf(c.labels); got != c.want {
			t.Errorf("%v: %s, want %s", c.labels, got, c.want)
		}
	}
}
