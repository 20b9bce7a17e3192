// Package console is the pages for operators: html/template on the server, one style sheet, one script, htmx and uPlot,
// all embedded, with nothing from outside and no build step.
//
//	New(Config) (http.Handler, error)   everything below <base>/console/
//
// The pages stand on the ports of package operate and on the small ones that [Config] names. A port that is nil is a
// page that says so. Every list is a form of GET: its filter is its URL. Every change is a POST of a dialog that also is
// a page of its own, so that it works without the script. Numbers that are shown live come from one [Live] of the
// process, whatever the number of tabs.
package console
