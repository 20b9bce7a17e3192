package duly

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"duly.dev/duly/internal/core"
	"duly.dev/duly/internal/quickjson"
)

type (
	jsonLevel int
	jsonMoney struct{ Cents int64 }
	jsonBase  struct {
		ID   string
		Kind string `json:"kind"`
	}
	jsonNested struct {
		*jsonBase
		Name string
		Next *jsonNested
		Kids []jsonNested
	}
	jsonNumbers struct {
		Amount json.Number `json:"amount"`
		Any    any
		Big    *big.Int
		I8     int8
		U64    uint64
		F32    float32
		Quoted int     `json:",string"`
		Float  float64 `json:"float,string"`
	}
	jsonNames struct {
		Größe  string
		UserID string
		Long   string `json:"ſ"`
		Kelvin string `json:"K"`
		//lint:ignore SA5008 encoding/json takes it for the name "-"
		Dash string `json:"-,"`
	}
	jsonTimes struct {
		Wait  time.Duration `json:"wait"`
		At    time.Time
		Level jsonLevel
		Money *jsonMoney
		Bytes []byte
		Array [2]int
		Raw   json.RawMessage
		URL   *url.URL
	}
	jsonMaps struct {
		M map[int]string
		L map[jsonLevel]int
		A map[netip.Addr]string
		D map[string]any
	}
)

func (l *jsonLevel) UnmarshalText(b []byte) error {
	_, err := fmt.Sscanf(string(b), "L%d", (*int)(l))
	return err
}

func (m *jsonMoney) UnmarshalJSON(b []byte) error {
	var euros, cents int64
	if _, err := fmt.Sscanf(string(b), `"%d.%d"`, &euros, &cents); err != nil {
		return err
	}
	m.Cents = euros*100 + cents
	return nil
}

var jsonTexts = []string{
	`null`, `{}`, `[]`, `""`, `7`, `true`, `{`, `{"a":1,}`, `{"a":1}x`,
	`{"amount":"12.50"}`, `{"amount":12.50}`, `{"amount":"x"}`, `{"amount":""}`, `{"amount":null}`, `{"amount":1e400}`,
	`{"Any":12345678901234567890,"Big":123456789012345678901234567890}`, `{"I8":128}`, `{"U64":-1}`, `{"F32":1e39}`,
	`{"Quoted":"5"}`, `{"Quoted":5}`, `{"Quoted":"05"}`, `{"float":"0x1p-2"}`, `{"float":"1_000"}`, `{"float":"NaN"}`,
	`{"größe":"L"}`, `{"GRÖSSE":"L"}`, `{"GRÖßE":"L"}`, `{"s":"long","k":"kelvin"}`, `{"userid":"a","USERID":"b"}`, `{"-":"d"}`,
	`{"wait":"1s"}`, `{"wait":5}`, `{"wait":1.5}`, `{"At":"2026-03-29T02:30:00,5Z"}`, `{"At":"2026-03-29T02:30:00+01:00"}`, `{"At":1}`,
	`{"Level":"L2","Money":"1.05","Bytes":"aGk=","Array":[1,2,3],"Raw":{"a": 1 }}`, `{"Money":1}`, `{"Bytes":[1]}`, `{"Level":2}`, `{"Bytes":"aG\nk="}`,
	`{"M":{"+1":"a"}}`, `{"M":{"1":"a","-2":"b"},"L":{"L3":4},"A":{"10.0.0.1":"x"}}`, `{"M":{"1.0":"a"}}`, `{"D":{"a":1,"a":[null,{"b":"ü"}]}}`,
	`{"ID":"a","kind":"b","Name":"c","Next":{"Kids":[{},{"Name":"d"}]}}`, `{"jsonBase":{"ID":"x"}}`, `{"Name":"\ud800"}`, "{\"Name\":\"\xff\"}", "\ufeff{}",
}

// A typed handler is given what encoding/json makes of an input, of any size: so is
// the result of an earlier step, and what an undo gets of its do. Only members in other case than the fields are refused.
//
// covers: C1
func TestTypedValuesAreThoseOfEncodingJSON(t *testing.T) {
	for _, check := range []func(*testing.T, []byte){
		likeEncodingJSON[any], likeEncodingJSON[jsonNested], likeEncodingJSON[jsonNumbers], likeEncodingJSON[jsonNames], likeEncodingJSON[jsonTimes],
		likeEncodingJSON[jsonMaps], likeEncodingJSON[map[string]string], likeEncodingJSON[[]any], likeEncodingJSON[string], likeEncodingJSON[*int],
		likeEncodingJSON[json.RawMessage], likeEncodingJSON[json.Number], likeEncodingJSON[time.Duration], likeEncodingJSON[time.Time], likeEncodingJSON[jsonLevel],
	} {
		for _, text := range jsonTexts {
			// Space before a value means nothing, and moves the size.
			for _, size := range []int{0, 9_999, 10_000, 10_001, 60_000} {
				check(t, []byte(strings.Repeat(" ", max(0, size-len(text)))+text))
			}
		}
	}
}

// likeEncodingJSON reads data as input, as an earlier result and as the result of a do.
func likeEncodingJSON[T any](t *testing.T, data []byte) {
	t.Helper()
	var want T
	wantErr := json.Unmarshal(data, &want)
	expect := func(what string, got T, err error) {
		t.Helper()
		text := strings.TrimSpace(string(data))
		if _, named := errors.AsType[*quickjson.NameError](err); named {
			err = nil // but for that it is the same
		}
		if (err == nil) != (wantErr == nil) || err != nil && !strings.HasSuffix(err.Error(), wantErr.Error()) {
			t.Errorf("%s of %T, %d bytes, %s: error %v, encoding/json says %v", what, want, len(data), text, err, wantErr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s of %T, %d bytes, %s: %+v, encoding/json gives %+v", what, want, len(data), text, got, want)
		}
	}
	call, err := callOf[T](nil, &core.Command{Task: "a", Step: "s", Input: data})
	expect("input", call.Input, err)
	undo, err := undoOf[T, T](nil, &core.Command{Task: "a", Step: "s", Input: data, Result: data})
	expect("input of an undo", undo.Input, err)
	if err == nil {
		expect("result of a do", undo.Result, nil)
	}
	earlier := NewCheck[T, T]("early", "a")
	out, err := earlier.Result(Call[T]{Task: "a", results: []core.StepResult{{Step: "early", Result: data}}})
	expect("earlier result", out, err)
}

// FuzzTypedInput looks for a difference that the table above has not.
func FuzzTypedInput(f *testing.F) {
	for _, text := range jsonTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return // an empty result is null
		}
		likeEncodingJSON[jsonNumbers](t, data)
		likeEncodingJSON[jsonNames](t, data)
		likeEncodingJSON[jsonTimes](t, data)
		likeEncodingJSON[any](t, data)
	})
}

// errors.Is and errors.As see through to what encoding/json said.
func TestInputErrorIsWrapped(t *testing.T) {
	_, err := callOf[jsonTimes](nil, &core.Command{Task: "a", Step: "s", Input: []byte(`{"wait":"1s"}`)})
	wrong, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok || wrong.Field != "wait" {
		t.Errorf("got %v", err)
	}
}
