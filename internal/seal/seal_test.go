package seal

import (
	"strings"
	"testing"
)

// TestOf: an envelope is known by all its members and no other; what only looks like one is a payload of its own.
func TestOf(t *testing.T) {
	e := Envelope{Form: A256GCM, Key: "k1", Data: []byte("data")}
	text, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for payload, want := range map[string]bool{
		string(text):               true,
		"  " + string(text) + "\n": true,
		`{"data":"ZGF0YQ==","key":"k1","duly.enc":"x"}`:           true,
		`{"duly.enc":"x","key":"k1","data":"ZA==","more":1}`:      false,
		`{"duly.enc":"x","key":"k1","data":"not base64!"}`:        false,
		`{"duly.enc":"x","key":"k1","data":"ZA==","Data":"ZA=="}`: false, // a member of its own, to others
		`{"duly.enc":"x","KEY":"k1","data":"ZA=="}`:               false,
		`{"duly.enc":"x","key":"k1"}`:                             false,
		`{"duly.enc":"x","data":"ZA=="}`:                          false,
		`{"duly.enc":1,"key":"k1","data":"ZA=="}`:                 false,
		`{"key":"k1","data":"ZA=="}`:                              false,
		`"duly.enc"`:                                              false,
		`["duly.enc"]`:                                            false,
		string(text) + "{}":                                       false,
		``:                                                        false,
		`{"note":"\"duly.enc\""}`:                                 false,
		strings.Replace(string(text), `"duly.enc"`, `"x"`, 1):     false,
	} {
		if got, is := Of([]byte(payload)); is != want || is && got.Key != "k1" {
			t.Errorf("%s: %v %+v, want %v", payload, is, got, want)
		}
	}
}
