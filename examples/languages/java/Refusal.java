/** An answer with a code: 4xx is final, 5xx is tried again. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1;

    final int code;

    Refusal(int code, String text) {
        super(text);
        this.code = code;
    }
}
