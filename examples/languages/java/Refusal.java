/** An answer with a code: 4xx is final, 512 is final and undone, other 5xx are tried again. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1;

    final int code;

    Refusal(int code, String text) {
        super(text);
        this.code = code;
    }
}
